#include "acer/owner.h"

#include <c10/core/GradMode.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "acer/checkpoint.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

constexpr size_t most_returns = 100, most_stalenesses = 1000;

template <class Values>
void keep_last(Values& values, size_t most) {
  if (values.size() > most) values.erase(values.begin(), values.end() - static_cast<ptrdiff_t>(most));
}

// What workers call.
Owner::Values give_values(std::shared_ptr<Owner>& owner) { return owner->values(); }
Owner::Values apply_delivery(std::shared_ptr<Owner>& owner, const Owner::Delivery& delivery) {
  return owner->apply(delivery);
}

void copy_values(const std::vector<at::Tensor>& from, const Module& to) {
  const c10::NoGradGuard no_grad;
  const auto there = to.parameters();
  for (size_t i = 0; i < there.size(); ++i) there[i].copy_(from[i]);
}

}  // namespace

Owner::Owner(const Settings& settings, const Spec& spec, const Board& board)
    : steps_wanted_(settings.steps),
      board_(board),
      shared_("farad-acer-owner-" + std::to_string(::getpid()), settings.shape(spec), settings) {}

Owner::Values Owner::values_now() {
  const auto snapshot = shared_.model.snapshot();
  Values values{snapshot.version, {}, {}, board_.stop || steps_ >= steps_wanted_};
  for (const auto& [name, tensor] : snapshot.tensors) values.network.push_back(tensor);
  for (const auto& [name, tensor] : snapshot.average) values.average.push_back(tensor);
  return values;
}

Owner::Values Owner::values() {
  const std::lock_guard lock(mutex_);
  return values_now();
}

Owner::Values Owner::apply(const Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  const auto update = shared_.model.step(delivery.gradients, static_cast<double>(delivery.samples));
  const uint64_t stale = update.version - 1 - delivery.version_read;
  staleness_ += static_cast<double>(stale);
  most_stale_ = std::max(most_stale_, stale);
  stale_.push_back(stale);
  keep_last(stale_, most_stalenesses);
  steps_ += delivery.steps;
  episodes_ += static_cast<int64_t>(delivery.returns.size());
  returns_.insert(returns_.end(), delivery.returns.begin(), delivery.returns.end());
  keep_last(returns_, most_returns);
  return values_now();
}

Owner::Progress Owner::progress() const {
  const std::lock_guard lock(mutex_);
  Progress progress{.steps = steps_, .episodes = episodes_, .updates = shared_.model.version()};
  progress.most_stale = most_stale_;
  if (progress.updates > 0) progress.mean_staleness = staleness_ / static_cast<double>(progress.updates);
  if (!stale_.empty()) {
    std::vector<uint64_t> sorted(stale_.begin(), stale_.end());
    std::sort(sorted.begin(), sorted.end());
    progress.staleness_p99 = static_cast<double>(sorted[(sorted.size() - 1) * 99 / 100]);
  }
  if (!returns_.empty()) {
    const auto [least, most] = std::minmax_element(returns_.begin(), returns_.end());
    progress.mean_return =
        std::accumulate(returns_.begin(), returns_.end(), 0.0) / static_cast<double>(returns_.size());
    progress.least_return = *least;
    progress.most_return = *most;
  }
  return progress;
}

uint64_t Owner::copy_to(Module& network) {
  const auto now = values();
  copy_values(now.network, network);
  return now.version;
}

void Owner::save(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  shared_.model.save(Checkpoint::model(checkpoint));
  const auto path = Checkpoint::counts(checkpoint);
  std::ofstream out(path, std::ios::binary);
  for (const int64_t count : {steps_, episodes_}) put(out, count);
  put(out, staleness_);
  put(out, most_stale_);
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

void Owner::load(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  shared_.model.load(Checkpoint::model(checkpoint));
  std::ifstream in(Checkpoint::counts(checkpoint), std::ios::binary);
  for (int64_t* count : {&steps_, &episodes_}) *count = take<int64_t>(in);
  staleness_ = take<double>(in);
  most_stale_ = take<uint64_t>(in);
}

OwnedParameters::OwnedParameters(const RRef<std::shared_ptr<Owner>>& owner, const Tally& tally)
    : owner_(owner), tally_(tally), values_(owner.rpc_sync<give_values>()) {}

void OwnedParameters::pull(Module& network, Module& average) {
  copy_values(values_.network, network);
  copy_values(values_.average, average);
}

shared::Update OwnedParameters::step(const Module& network, int64_t samples) {
  Owner::Delivery delivery{values_.version, samples, gradients_of(network), tally_.steps - steps_told_, {}};
  for (; episodes_told_ < tally_.episodes; ++episodes_told_)
    delivery.returns.push_back(tally_.returns[static_cast<size_t>(episodes_told_) % Tally::most_episodes]);
  steps_told_ += delivery.steps;
  const uint64_t read = values_.version;
  values_ = owner_.rpc_sync<apply_delivery>(delivery);
  return {-1, 0, read, values_.version, {}};
}

}  // namespace farad::acer
