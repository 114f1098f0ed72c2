#pragma once

#include <ATen/core/Tensor.h>
#include <farad/fields.h>
#include <farad/rref.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "acer/board.h"
#include "acer/metrics.h"
#include "acer/parameters.h"
#include "acer/shared_parameters.h"

namespace farad::acer {

/// The parameters of a training over machines, where one member of the group keeps them: it applies what the others
/// send and gives them what came of it. Any thread.
class Owner {
 public:
  /// `board.stop` ends the training early. What workers tell of themselves is counted there, at their numbers.
  Owner(const Settings& settings, const Spec& spec, Board& board);

  /// Values of one version, of the policy and of its average.
  struct Values {
    uint64_t version = 0;
    std::vector<at::Tensor> network, average;
    bool stop = false;  ///< the training is done
    FARAD_FIELDS(version, network, average, stop)
  };
  /// What a worker brings: gradients, and what it has done since it last brought some.
  struct Delivery {
    uint64_t version_read = 0;  ///< that the gradients are of
    int64_t samples = 0;        ///< that they are the mean of
    std::vector<at::Tensor> gradients;
    int worker = 0;  ///< its number, from 0
    int64_t steps = 0, on_policy = 0, off_policy = 0;
    int64_t replay_size = 0;  ///< as it is now
    double largest_ratio = 0;
    std::vector<double> measures;  ///< what it found, as sums: see Measure
    std::vector<double> returns;   ///< of episodes that are over
    std::vector<int64_t> lengths;  ///< and how many steps they had
    FARAD_FIELDS(version_read, samples, gradients, worker, steps, on_policy, off_policy, replay_size, largest_ratio,
                 measures, returns, lengths)
  };

  Values values();
  /// Applies them, and gives the values after that.
  Values apply(const Delivery& delivery);

  struct Progress {
    int64_t steps = 0;
    uint64_t updates = 0;
  };
  Progress progress() const;
  /// A row of metrics. How late updates were is known here and not by the model, which this process alone steps.
  Row row(Metrics& metrics, double seconds);
  /// Of the shared model, for another process of this machine to attach to and look on.
  const std::string& model() const { return shared_.model.name(); }
  size_t bytes() const { return bytes_of(*shared_.network); }
  /// By how much each of the last thousand updates was late.
  std::vector<uint64_t> staleness() const;

  /// Copies the values into a network of the same kind; gives their version.
  uint64_t copy_to(Module& network);
  /// The model and what was counted, as parts of a checkpoint.
  void save(const std::string& checkpoint);
  void load(const std::string& checkpoint);

 private:
  Values values_now();
  void count(const Delivery& delivery);

  const int64_t steps_wanted_;
  const int workers_;
  Board& board_;
  mutable std::mutex mutex_;  // of all that follows
  SharedModel shared_;
  int64_t steps_ = 0;
  std::deque<uint64_t> stale_;  // of the last updates
  double staleness_ = 0;
  uint64_t most_stale_ = 0;
};

/// The same as a worker sees it. What comes with the reply to an update is what the next pull() gives, so that each
/// update is one call.
class OwnedParameters final : public Parameters {
 public:
  /// `tally`: of the worker with that number, which tells what it has done and found.
  OwnedParameters(const RRef<std::shared_ptr<Owner>>& owner, Tally& tally, int worker);

  void pull(Module& network, Module& average) override;
  shared::Update step(const Module& network, int64_t samples) override;

  bool told_to_stop() const { return values_.stop; }

 private:
  Owner::Delivery delivery_of(const Module& network, int64_t samples);

  const RRef<std::shared_ptr<Owner>> owner_;
  Tally& tally_;
  const int worker_;
  Owner::Values values_;
  int64_t steps_told_ = 0, episodes_told_ = 0, on_policy_told_ = 0, off_policy_told_ = 0;
  Measures measures_told_{};
};

}  // namespace farad::acer
