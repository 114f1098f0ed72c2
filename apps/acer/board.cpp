#include "acer/board.h"

#include <farad/error.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

namespace farad::acer {

static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

void Tally::add(Measure measure, double amount) {
  auto& sum = sums[static_cast<size_t>(measure)];
  sum.store(sum.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);  // Nobody else writes.
}

void Tally::add(const Findings& findings) {
  add(Measure::Steps, findings.steps);
  add(Measure::PolicyLoss, findings.policy_loss);
  add(Measure::CorrectionLoss, findings.correction_loss);
  add(Measure::CriticLoss, findings.critic_loss);
  add(Measure::Entropy, findings.entropy);
  add(Measure::Divergence, findings.divergence);
  add(Measure::Bounded, findings.bounded);
  add(Measure::Effect, findings.effect);
  add(Measure::Ratio, findings.ratio);
  add(Measure::RatioAbove1, findings.ratio_above_1);
  add(Measure::RatioAboveC, findings.ratio_above_c);
  add(Measure::Target, findings.target);
  add(Measure::TargetSquared, findings.target_squared);
  add(Measure::Error, findings.error);
  add(Measure::ErrorSquared, findings.error_squared);
  add(Measure::GradientNorm, findings.gradient_norm);
  add(Measure::ClippedNorm, findings.clipped_norm);
  if (findings.largest_ratio > largest_ratio.load()) largest_ratio.store(findings.largest_ratio);
}

void Tally::add_episode(double sum_of_rewards, int64_t length) {
  const auto at = static_cast<size_t>(episodes.load()) % most_episodes;
  returns[at].store(sum_of_rewards);
  lengths[at].store(length);
  ends[at].store(std::chrono::steady_clock::now().time_since_epoch().count());
  episodes.fetch_add(1);
}

Measures Tally::measures() const {
  Measures all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = sums[i].load(std::memory_order_relaxed);
  return all;
}

Board& Board::create() {
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(std::string("[acer] no memory for all workers to share: ") + std::strerror(errno));
  return *new (memory) Board;
}

}  // namespace farad::acer
