#include "acer/owner.h"

#include <c10/core/GradMode.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "acer/checkpoint.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

constexpr size_t most_stalenesses = 1000;

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

Owner::Owner(const Settings& settings, const Spec& spec, Board& board)
    : steps_wanted_(settings.steps),
      workers_(settings.workers),
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
  count(delivery);
  return values_now();
}

void Owner::count(const Delivery& delivery) {
  steps_ += delivery.steps;
  auto& tally = board_.tallies.at(static_cast<size_t>(delivery.worker));
  tally.steps += delivery.steps;
  tally.on_policy += delivery.on_policy;
  tally.off_policy += delivery.off_policy;
  tally.replay_size = delivery.replay_size;
  tally.largest_ratio = std::max(tally.largest_ratio.load(), delivery.largest_ratio);
  for (size_t i = 0; i < std::min(delivery.measures.size(), tally.sums.size()); ++i)
    tally.add(static_cast<Measure>(i), delivery.measures[i]);
  for (size_t i = 0; i < delivery.returns.size(); ++i) tally.add_episode(delivery.returns[i], delivery.lengths.at(i));
}

Owner::Progress Owner::progress() const {
  const std::lock_guard lock(mutex_);
  return {steps_, shared_.model.version()};
}

std::vector<uint64_t> Owner::staleness() const {
  const std::lock_guard lock(mutex_);
  return {stale_.begin(), stale_.end()};
}

Row Owner::row(Metrics& metrics, double seconds) {
  const std::lock_guard lock(mutex_);
  auto row = metrics.row(board_, shared_.model, seconds);
  std::vector<uint64_t> sorted(stale_.begin(), stale_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto updates = static_cast<double>(shared_.model.version());
  for (auto& [name, value] : row) {
    const std::string_view column = name;
    if (column == "staleness_mean") value = updates > 0 ? staleness_ / updates : 0;
    if (column == "staleness_p99" && !sorted.empty())
      value = static_cast<double>(sorted[(sorted.size() - 1) * 99 / 100]);
    if (column == "staleness_max") value = static_cast<double>(most_stale_);
  }
  return row;
}

uint64_t Owner::copy_to(Module& network) {
  const auto now = values();
  copy_values(now.network, network);
  return now.version;
}

namespace {

/// Where, in a checkpoint, lies how late updates were.
std::string lateness_in(const std::string& checkpoint) { return checkpoint + "/lateness"; }

}  // namespace

void Owner::save(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  shared_.model.save(Checkpoint::model(checkpoint));
  save_counts(Checkpoint::counts(checkpoint), board_, Board::most_workers);
  const auto path = lateness_in(checkpoint);
  std::ofstream out(path, std::ios::binary);
  put(out, staleness_);
  put(out, most_stale_);
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

void Owner::load(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  shared_.model.load(Checkpoint::model(checkpoint));
  load_counts(Checkpoint::counts(checkpoint), board_, Board::most_workers);
  // There may be fewer workers now: what those did who are none any more, the first one did.
  for (size_t w = static_cast<size_t>(workers_); w < board_.tallies.size(); ++w) {
    auto &first = board_.tallies[0], &gone = board_.tallies[w];
    for (const auto count : {&Tally::steps, &Tally::episodes, &Tally::on_policy, &Tally::off_policy})
      first.*count += (gone.*count).exchange(0);
  }
  steps_ = 0;
  for (const auto& tally : board_.tallies) steps_ += tally.steps;
  std::ifstream in(lateness_in(checkpoint), std::ios::binary);
  staleness_ = take<double>(in);
  most_stale_ = take<uint64_t>(in);
}

OwnedParameters::OwnedParameters(const RRef<std::shared_ptr<Owner>>& owner, Tally& tally, int worker)
    : owner_(owner), tally_(tally), worker_(worker), values_(owner.rpc_sync<give_values>()) {}

void OwnedParameters::pull(Module& network, Module& average) {
  copy_values(values_.network, network);
  copy_values(values_.average, average);
}

shared::Update OwnedParameters::step(const Module& network, int64_t samples) {
  const auto delivery = delivery_of(network, samples);
  values_ = owner_.rpc_sync<apply_delivery>(delivery);
  return {-1, 0, delivery.version_read, values_.version, {}};
}

Owner::Delivery OwnedParameters::delivery_of(const Module& network, int64_t samples) {
  Owner::Delivery delivery;
  delivery.version_read = values_.version;
  delivery.samples = samples;
  delivery.gradients = gradients_of(network);
  delivery.worker = worker_;
  const auto since_told = [](const std::atomic<int64_t>& count, int64_t& told) {
    const int64_t before = told;
    told = count;
    return told - before;
  };
  delivery.steps = since_told(tally_.steps, steps_told_);
  delivery.on_policy = since_told(tally_.on_policy, on_policy_told_);
  delivery.off_policy = since_told(tally_.off_policy, off_policy_told_);
  delivery.replay_size = tally_.replay_size;
  delivery.largest_ratio = tally_.largest_ratio.exchange(0);
  const auto measures = tally_.measures();
  for (size_t i = 0; i < measures.size(); ++i) delivery.measures.push_back(measures[i] - measures_told_[i]);
  measures_told_ = measures;
  for (; episodes_told_ < tally_.episodes; ++episodes_told_) {
    const auto at = static_cast<size_t>(episodes_told_) % Tally::most_episodes;
    delivery.returns.push_back(tally_.returns[at]);
    delivery.lengths.push_back(tally_.lengths[at]);
  }
  return delivery;
}

}  // namespace farad::acer
