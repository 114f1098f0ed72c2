#include "acer/checkpoint.h"

#include <farad/error.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "acer/best.h"
#include "acer/stream.h"

namespace farad::acer {

namespace fs = std::filesystem;

void Checkpoint::clear(const std::string& parts) {
  fs::remove_all(parts);
  fs::create_directories(parts);
}

void Checkpoint::publish(const std::string& parts) const {
  const auto old = place_ + ".old";
  if (fs::exists(
          place_)) {  // Else whoever published before was killed between its renames, and the old one is the last.
    fs::remove_all(old);
    fs::rename(place_, old);
  }
  fs::rename(parts, place_);
  fs::remove_all(old);
}

std::string Checkpoint::last() const {
  // Killed between the two renames, the one before is still there.
  for (const auto& path : {place_, place_ + ".old"}) {
    if (fs::exists(path)) return path;
  }
  throw Error("[acer] there is no checkpoint at " + place_ + " to resume from");
}

namespace {

constexpr std::array files_of_rows{"metrics.csv", "workers.csv", "evaluations.csv"};

std::string lengths(const std::string& parts) { return parts + "/lengths"; }

}  // namespace

void Checkpoint::keep_results(const std::string& parts) const {
  std::ofstream out(lengths(parts), std::ios::binary);
  for (const char* name : files_of_rows) {
    const auto rows = fs::path(out_) / name;
    put(out, fs::exists(rows) ? fs::file_size(rows) : std::uintmax_t{0});
  }
  if (!out.flush()) throw Error("[acer] cannot write " + lengths(parts));
  if (const auto best = BestPolicy::path(out_); fs::exists(best))
    fs::copy_file(best, BestPolicy::path(parts), fs::copy_options::overwrite_existing);
}

void Checkpoint::restore_results() const {
  const auto parts = last();
  std::ifstream in(lengths(parts), std::ios::binary);
  for (const char* name : files_of_rows) {
    const auto length = take<std::uintmax_t>(in);
    const auto rows = fs::path(out_) / name;
    if (fs::exists(rows) && fs::file_size(rows) > length) fs::resize_file(rows, length);
  }
  const auto best = BestPolicy::path(parts), there = BestPolicy::path(out_);
  if (fs::exists(best)) {
    fs::copy_file(best, there, fs::copy_options::overwrite_existing);
  } else {
    fs::remove(there);  // It is of steps that are made anew.
  }
}

void save_counts(const std::string& path, const Board& board, int workers) {
  std::ofstream out(path, std::ios::binary);
  put(out, workers);
  put(out, board.steps.load());
  put(out, board.seconds.load());
  for (int i = 0; i < workers; ++i) {
    const auto& tally = board.tallies[static_cast<size_t>(i)];
    for (const auto* count : {&tally.steps, &tally.episodes, &tally.on_policy, &tally.off_policy})
      put(out, count->load());
    put(out, tally.life.load());
  }
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

void load_counts(const std::string& path, Board& board, int workers) {
  std::ifstream in(path, std::ios::binary);
  const int saved = take<int>(in);
  if (saved != workers) {
    throw Error("[acer] " + path + " is of a training with " + std::to_string(saved) + " workers, not " +
                std::to_string(workers));
  }
  board.steps = take<int64_t>(in);
  board.seconds = take<double>(in);
  for (int i = 0; i < workers; ++i) {
    auto& tally = board.tallies[static_cast<size_t>(i)];
    for (auto* count : {&tally.steps, &tally.episodes, &tally.on_policy, &tally.off_policy}) *count = take<int64_t>(in);
    tally.life = take<int>(in);
  }
}

}  // namespace farad::acer
