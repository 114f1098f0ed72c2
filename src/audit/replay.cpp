#include "audit/replay.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>

#include "audit/aggregation.h"
#include "audit/copy.h"
#include "audit/numbers.h"
#include "audit/worker.h"

namespace farad::audit {
namespace {

/// The parameters of one process, libtorch's optimizer over them, and their average.
class Alone {
 public:
  Alone(const Training& training, const Options& options)
      : copy_(training, options),
        optimizer_(optim::make_optimizer(training.optimizer, copy_.trained())),
        rate_(training.optimizer.options.at("lr")),
        keeps_(training.moving_average) {
    for (const auto& tensor : copy_.trained()) average_.push_back(tensor.detach().clone());
  }

  void step(const std::vector<at::Tensor>& gradients) {
    const auto& trained = copy_.trained();
    for (size_t i = 0; i < trained.size(); ++i) trained[i].mutable_grad() = gradients[i];
    optimizer_->step(rate_);
    copy_.clear_gradients();
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < trained.size(); ++i) average_[i].mul_(keeps_).add_(trained[i], 1 - keeps_);
  }
  void load(const at::Tensor& values) { copy_.load(values); }
  at::Tensor values() const { return copy_.values(); }
  at::Tensor average() const { return flatten(average_, average_); }

 private:
  Copy copy_;
  const std::unique_ptr<optim::TorchOptimizer> optimizer_;
  const double rate_;
  const double keeps_;
  std::vector<at::Tensor> average_;
};

/// Computes what a worker sent anew, and notes what was different there.
class Recomputed {
 public:
  Recomputed(const Training& training, const Options& options, Replay& result)
      : copy_(training, options), result_(result) {}

  std::vector<at::Tensor> gradients(const Sent& sent, const at::Tensor& values, const at::Tensor& average) {
    copy_.load(values);
    if (copy_.wants_average()) copy_.load_average(average);
    const auto batch = copy_.batch(sent.worker, sent.sequence);
    result_.other_batches += hash(batch.tensors) != sent.batch;
    result_.other_values += sent.values.defined() && !same(sent.values, values);
    copy_.clear_gradients();
    copy_.backward(batch);
    return copy_.gradients();
  }
  const Copy& copy() const { return copy_; }

 private:
  Copy copy_;
  Replay& result_;
};

std::vector<at::Tensor> probe_of(const Copy& copy, c10::ScalarType type) {
  std::vector<at::Tensor> probe;
  for (const auto& tensor : copy.trained()) probe.push_back(tensor.detach().clone());
  unflatten(probe_gradient(copy.elements(), type), probe);
  return probe;
}

template <class Values>
const at::Tensor& at_version(const Values& values, uint64_t version) {
  return values[std::min<size_t>(version, values.size() - 1)];
}

/// Drops versions that nobody reads any more, once those that there are take too much memory.
class Room {
 public:
  Room(const Evidence& evidence, uint64_t most_bytes, Replay& result)
      : result_(result),
        most_(most_bytes / std::max<uint64_t>(1, 2 * static_cast<uint64_t>(evidence.first.nbytes()))),
        over_after_(evidence.applied.size() + 1) {
    for (size_t i = 0; i < evidence.applied.size(); ++i) {
      for (const auto& part : evidence.applied[i].parts) {
        const auto* sent = evidence.find_sent(part.worker, part.sequence);
        if (!sent) continue;
        for (const auto version : {sent->version_read, sent->average_read}) last_read_[version] = i + 1;
      }
    }
    for (const auto& [version, update] : last_read_) over_after_[update].push_back(version);
  }

  /// So many updates have been replayed.
  void tidy(size_t updates) {
    if (result_.values.size() > 1) drop(result_.values.size() - 2, updates);
    for (const uint64_t version : over_after_[updates]) drop(version, updates);
  }

 private:
  void drop(uint64_t version, size_t updates) {
    if (version < most_ || version + 1 >= result_.values.size()) return;
    const auto read = last_read_.find(version);
    if (read != last_read_.end() && read->second > updates) return;
    result_.values[version] = at::Tensor();
    if (version < result_.averages.size()) result_.averages[version] = at::Tensor();
  }

  Replay& result_;
  const uint64_t most_;                            // of the first ones stay in any case
  std::map<uint64_t, size_t> last_read_;           // by version, after how many updates nobody reads it any more
  std::vector<std::vector<uint64_t>> over_after_;  // the same, by updates
};

/// What is made of several gradients, parameter by parameter. One that only some have counts as zero for the others;
/// one that nobody has is none.
std::vector<at::Tensor> mean_of(const std::vector<std::vector<at::Tensor>>& all, const std::vector<double>& samples) {
  if (all.size() == 1) return all.front();
  std::vector<at::Tensor> means;
  for (size_t i = 0; i < all.front().size(); ++i) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one[i].defined(); });
    if (known == all.end()) {
      means.emplace_back();
      continue;
    }
    std::vector<at::Tensor> parts;
    for (const auto& one : all) parts.push_back(one[i].defined() ? one[i] : at::zeros_like((*known)[i]));
    means.push_back(weighted_mean(parts, samples));
  }
  return means;
}

/// One process that trains as many copies and averages them likewise.
Replay replay_copies(const Training& training, const Options& options, const Evidence& evidence, uint64_t most_bytes) {
  Replay result;
  Recomputed recomputed(training, options, result);
  Room room(evidence, most_bytes, result);
  std::vector<std::unique_ptr<Alone>> copies;
  for (int i = 0; i < options.workers; ++i) copies.push_back(std::make_unique<Alone>(training, options));
  std::vector<double> samples(copies.size());
  const auto keep = [&](const at::Tensor& values) {
    result.values.push_back(values);
    if (training.moving_average == 0) return;
    const auto& before = result.averages;
    result.averages.push_back(
        before.empty() ? values.clone()
                       : before.back().mul(training.moving_average).add_(values, 1 - training.moving_average));
  };
  keep(copies.front()->values());
  for (int round = 1; round <= options.rounds; ++round) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto* sent = evidence.find_sent(static_cast<int>(i), static_cast<uint64_t>(round));
      if (!sent) continue;
      copies[i]->step(recomputed.gradients(*sent, copies[i]->values(),
                                           result.averages.empty() ? at::Tensor() : result.averages.back()));
      samples[i] += static_cast<double>(sent->samples);
    }
    if (round % options.average_every != 0 && round != options.rounds) continue;
    std::vector<at::Tensor> values;
    for (const auto& copy : copies) values.push_back(copy->values());
    keep(weighted_mean(values, samples));
    for (const auto& copy : copies) copy->load(result.values.back());
    std::fill(samples.begin(), samples.end(), 0);
    room.tidy(evidence.applied.size());  // Each copy has what it reads.
  }
  for (const auto& copy : copies) copy->step(probe_of(recomputed.copy(), options.dtype));
  for (const auto& copy : copies) result.probed.push_back(copy->values());
  if (options.average_every == 1) {  // Then that step is averaged too.
    const auto mean = weighted_mean(result.probed, std::vector<double>(copies.size(), 1));
    std::fill(result.probed.begin(), result.probed.end(), mean);
  }
  return result;
}

}  // namespace

Replay replay(const Training& training, const Options& options, const Evidence& evidence, uint64_t most_bytes) {
  if (options.policy == shared::Policy::Averaged) return replay_copies(training, options, evidence, most_bytes);
  Replay result;
  Alone alone(training, options);
  Recomputed recomputed(training, options, result);
  const bool averages = training.moving_average > 0;
  const auto keep = [&] {
    result.values.push_back(alone.values());
    if (averages) result.averages.push_back(alone.average());
  };
  keep();
  Room room(evidence, most_bytes, result);
  size_t replayed = 0;
  for (const auto& update : evidence.applied) {
    std::vector<std::vector<at::Tensor>> parts;
    std::vector<double> samples;
    for (const auto& part : update.parts) {
      const auto* sent = evidence.find_sent(part.worker, part.sequence);
      if (!sent) continue;
      parts.push_back(recomputed.gradients(*sent, at_version(result.values, sent->version_read),
                                           averages ? at_version(result.averages, sent->average_read) : at::Tensor()));
      samples.push_back(part.samples);
    }
    ++replayed;
    if (parts.empty()) continue;
    alone.step(mean_of(parts, samples));
    keep();
    room.tidy(replayed);
  }
  alone.step(probe_of(recomputed.copy(), options.dtype));
  result.probed.push_back(alone.values());
  return result;
}

}  // namespace farad::audit
