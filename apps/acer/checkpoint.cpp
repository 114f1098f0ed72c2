#include "acer/checkpoint.h"

#include <farad/error.h>

#include <filesystem>
#include <fstream>

#include "acer/stream.h"

namespace farad::acer {

namespace fs = std::filesystem;

void Checkpoint::clear(const std::string& parts) {
  fs::remove_all(parts);
  fs::create_directories(parts);
}

void Checkpoint::publish(const std::string& parts) const {
  const auto old = place_ + ".old";
  fs::remove_all(old);
  if (fs::exists(place_)) fs::rename(place_, old);
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

void save_counts(const std::string& path, const Board& board, int workers) {
  std::ofstream out(path, std::ios::binary);
  put(out, workers);
  put(out, board.steps.load());
  for (int i = 0; i < workers; ++i) {
    const auto& tally = board.tallies[static_cast<size_t>(i)];
    for (const auto* count : {&tally.steps, &tally.episodes, &tally.on_policy, &tally.off_policy})
      put(out, count->load());
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
  for (int i = 0; i < workers; ++i) {
    auto& tally = board.tallies[static_cast<size_t>(i)];
    for (auto* count : {&tally.steps, &tally.episodes, &tally.on_policy, &tally.off_policy}) *count = take<int64_t>(in);
  }
}

}  // namespace farad::acer
