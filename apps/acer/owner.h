#pragma once

#include <ATen/core/Tensor.h>
#include <farad/fields.h>
#include <farad/rref.h>

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "acer/board.h"
#include "acer/parameters.h"
#include "acer/shared_parameters.h"

namespace farad::acer {

/// The parameters of a training over machines, where one member of the group keeps them: it applies what the others
/// send and gives them what came of it. Any thread.
class Owner {
 public:
  /// `board.stop` ends the training early.
  Owner(const Settings& settings, const Spec& spec, const Board& board);

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
    int64_t steps = 0;
    std::vector<double> returns;  ///< of episodes that are over
    FARAD_FIELDS(version_read, samples, gradients, steps, returns)
  };

  Values values();
  /// Applies them, and gives the values after that.
  Values apply(const Delivery& delivery);

  struct Progress {
    static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    int64_t steps = 0, episodes = 0;
    uint64_t updates = 0, most_stale = 0;
    double mean_staleness = 0;
    double staleness_p99 = unknown;                                               ///< of the last thousand updates
    double mean_return = unknown, least_return = unknown, most_return = unknown;  ///< of the last hundred episodes
  };
  Progress progress() const;

  /// Copies the values into a network of the same kind; gives their version.
  uint64_t copy_to(Module& network);
  /// The model and what was counted, as parts of a checkpoint.
  void save(const std::string& checkpoint);
  void load(const std::string& checkpoint);

 private:
  Values values_now();

  const int64_t steps_wanted_;
  const Board& board_;
  mutable std::mutex mutex_;  // of all that follows
  SharedModel shared_;
  int64_t steps_ = 0, episodes_ = 0;
  std::deque<double> returns_;
  std::deque<uint64_t> stale_;  // of the last updates
  double staleness_ = 0;
  uint64_t most_stale_ = 0;
};

/// The same as a worker sees it. What comes with the reply to an update is what the next pull() gives, so that each
/// update is one call.
class OwnedParameters final : public Parameters {
 public:
  /// `tally`: of the worker, which tells what it has done.
  OwnedParameters(const RRef<std::shared_ptr<Owner>>& owner, const Tally& tally);

  void pull(Module& network, Module& average) override;
  shared::Update step(const Module& network, int64_t samples) override;

  bool told_to_stop() const { return values_.stop; }

 private:
  const RRef<std::shared_ptr<Owner>> owner_;
  const Tally& tally_;
  Owner::Values values_;
  int64_t steps_told_ = 0, episodes_told_ = 0;
};

}  // namespace farad::acer
