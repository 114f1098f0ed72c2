#include "acer/best.h"

#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "acer/plot.h"

namespace farad::acer {
namespace {

std::string evaluated_last(const std::string& out) { return out + "/evaluated.pt"; }

}  // namespace

BestPolicy::BestPolicy(const std::string& out, bool resume)
    : out_(out), best_(-std::numeric_limits<double>::infinity()) {
  const auto before = out + "/evaluations.csv";
  if (!resume || !std::filesystem::exists(before) || std::filesystem::is_empty(before)) return;
  const Table table(before);
  for (const double mean : table.column("greedy_mean")) best_ = std::max(best_, mean);
}

void BestPolicy::heard(const Evaluation& evaluation) {
  if (evaluation.greedy.mean < best_) return;  // Of those that are as good, the one that was trained for longer.
  best_ = evaluation.greedy.mean;
  std::filesystem::rename(evaluated_last(out_), path(out_));
}

void BestPolicy::write(torch::nn::Module& policy, const std::string& out) {
  torch::serialize::OutputArchive archive;
  policy.save(archive);
  archive.save_to(evaluated_last(out));
}

}  // namespace farad::acer
