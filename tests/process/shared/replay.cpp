#include "process/shared/replay.h"

namespace farad::test {
namespace {

std::string named(const Ledger::Part& part) {
  return "gradient " + std::to_string(part.sequence) + " of worker " + std::to_string(part.worker);
}

double sum_of_samples(const std::vector<Ledger::Part>& parts) {
  double sum = 0;
  for (const auto& part : parts) sum += part.samples;
  return sum;
}

}  // namespace

std::string Replay::follow(uint64_t version) {
  while (states_.size() <= version) {
    const uint64_t next = states_.size();
    if (version - next >= Ledger::most_lines / 2) return {};  // Lines of it may have been written over meanwhile.
    const auto& line = ledger_.line(next);
    if (line.version.load() != next) return "nobody was told of version " + std::to_string(next);
    auto wrong = add(line);
    if (!wrong.empty()) return "version " + std::to_string(next) + ": " + wrong;
  }
  return {};
}

uint64_t Replay::applied(int worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : found->second.applied;
}

std::string Replay::add(const Ledger::Line& line) {
  if (line.count == 0 || line.count > Ledger::most_parts) return "made of " + std::to_string(line.count);
  const std::vector<Ledger::Part> parts(line.parts, line.parts + line.count);
  return of_ == Of::Gradients ? add_gradients(parts) : add_copies(parts);
}

std::string Replay::add_gradients(const std::vector<Ledger::Part>& parts) {
  const double samples = sum_of_samples(parts);
  double mean = 0;
  for (const auto& part : parts) {
    auto& worker = workers_[part.worker];
    if (part.sequence <= worker.last) return named(part) + " is not after " + std::to_string(worker.last);
    if (part.samples != samples_of(part.worker, part.sequence)) {
      return named(part) + " has " + std::to_string(part.samples) + " samples";
    }
    worker = {part.sequence, worker.applied + 1};
    mean += gradient_of(part.worker, part.sequence) * (part.samples / samples);
  }
  momentum_ += mean;
  states_.push_back({value() - momentum_, 0});
  return {};
}

/// A copy is what the values were that it began as, and the last steps of its worker, as many as make its samples.
std::string Replay::add_copies(const std::vector<Ledger::Part>& parts) {
  const double samples = sum_of_samples(parts);
  const auto before = states_.back();
  double sum = 0, stays = 1;
  for (const auto& part : parts) {
    if (part.version_read >= states_.size()) return named(part) + " is of a version that is still to come";
    const auto& began = states_[part.version_read];
    auto& worker = workers_[part.worker];
    double copy = began.value, left = part.samples;
    uint64_t sequence = part.sequence;
    for (; left > 0 && sequence > worker.last; --sequence) {
      copy -= gradient_of(part.worker, sequence);
      left -= samples_of(part.worker, sequence);
    }
    if (left != 0) return named(part) + " has " + std::to_string(part.samples) + " samples, which no steps make";
    worker = {part.sequence, worker.applied + part.sequence - sequence};
    const double share = part.samples / (samples + before.samples - began.samples);
    sum += share * copy;
    stays -= share;
  }
  states_.push_back({sum + stays * before.value, before.samples + samples});
  return {};
}

}  // namespace farad::test
