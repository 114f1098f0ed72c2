#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/optimizer.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace farad::detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool trained = true;
};

/// Parameters, then buffers, of a module or of its holder.
template <class Module>
std::vector<NamedTensor> tensors_of(Module& module) {
  if constexpr (requires { module.named_parameters(); }) {
    std::vector<NamedTensor> all;
    for (const auto& item : module.named_parameters())
      all.push_back({item.key(), item.value(), item.value().requires_grad()});
    for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value(), false});
    return all;
  } else {
    return tensors_of(*module);
  }
}

}  // namespace farad::detail

/// Training by several processes of one machine on one model in shared memory.
namespace farad::shared {

/// How the updates of several processes come together.
enum class Policy {
  Locked,   ///< one at a time; each wholly or not at all, also if its process is killed
  Hogwild,  ///< all at once: elements may be lost where two write the same one, updates are not
};  // Averaged, Managed and AllReduced are to come.

/// One update, as it was applied.
struct Update {
  int worker = -1;
  uint64_t sequence = 0;      ///< the how-manieth of that worker
  uint64_t version_read = 0;  ///< of the model that its gradients were computed from
  uint64_t version = 0;       ///< of the model after it

  uint64_t staleness() const { return version > version_read ? version - 1 - version_read : 0; }
};

/// Is told of an update by the process that applies it, and within it: what it throws undoes the update, but under
/// Hogwild. The gradients are those that the optimizer used; who keeps them copies them. The bound module already has
/// the new values. The model must not be called from there.
///
/// Under Locked an update that was told of can still be undone, if its process is killed right after; then another one
/// of the same version follows, and the last one told of is the one that counts.
using Observer = std::function<void(const Update&, const std::vector<at::Tensor>& gradients)>;

struct Options {
  Policy policy = Policy::Locked;
  /// How long to wait for another process: at attach() for one that offers the model, later for the lock. 0 = for ever.
  std::chrono::milliseconds patience{10'000};
  /// Of create(), 0 = none: the model also keeps a moving average of its trained parameters, which starts at their
  /// first values and of which this much stays at each update: average = m * average + (1 - m) * parameter.
  double moving_average = 0;
  /// Of this process. Costs nothing if there is none.
  Observer observer = {};
};

/// What is known of the updates so far. Counts are exact under each policy.
struct Stats {
  struct Worker {
    int worker = -1;
    int pid = 0;
    bool alive = false;
    uint64_t begun = 0;    ///< updates that it set out to apply
    uint64_t applied = 0;  ///< and that were
    double mean_staleness = 0;
    uint64_t max_staleness = 0;
  };
  uint64_t version = 0;      ///< how many updates were applied
  uint64_t rolled_back = 0;  ///< half done by a process that was killed, and undone
  uint64_t cut_off = 0;      ///< Hogwild: half done by a process that was killed
  uint64_t snapshots = 0;
  uint64_t snapshot_retries = 0;  ///< because the model changed meanwhile
  uint64_t snapshots_torn = 0;    ///< Hogwild: could not be had whole in time
  double mean_staleness = 0;
  uint64_t max_staleness = 0;
  std::vector<Worker> workers;  ///< those that there are or were
};

/// A seed for the random numbers of one worker, from that of the whole training: whatever the seeds, workers draw
/// unrelated numbers, and no two workers of one seed have the same. (libtorch's generators for the CPU use its lower
/// half.)
uint64_t stream_seed(uint64_t seed, uint64_t worker);

/// A module's parameters, buffers and optimizer state in a segment of shared memory, which any process of this machine
/// finds by its name. The segment ends with the last process that uses it, however that one ends.
///
/// The module that is given to create() or attach() is bound to the segment: its tensors lie there, and it sees what
/// others make of them at once. Whoever computes gradients while others train pulls the values into a module of its own
/// first, so that all of them are of one version. Gradients are read where the module has them and copied at once;
/// whether they are set to zero or to nothing afterwards makes no difference.
///
/// Any thread, one at a time. After a fork the child's Model is a worker of its own, from its first use on; a child
/// that does not use it has to end or destroy it, else the name may outlive those who serve it.
class Model {
 public:
  /// Puts the module's tensors into a new segment. `optimizer`: a torch::optim::SGDOptions and so on. Throws if there
  /// is a model of that name on this machine.
  template <class Module, class OptimizerOptions>
  static Model create(const std::string& name, Module& module, const OptimizerOptions& optimizer,
                      Options options = {}) {
    return create(name, detail::tensors_of(module), detail::settings_of(optimizer), options);
  }
  /// By plain SGD, with a learning rate of 0.01.
  template <class Module>
  static Model create(const std::string& name, Module& module, Options options = {}) {
    return create(name, detail::tensors_of(module), plain_sgd(), options);
  }
  /// Binds the module to a segment that another process, or this one, has created. Throws Error with what differs if
  /// the module, a type or the version of libtorch is another one; Timeout if there is none in time.
  template <class Module>
  static Model attach(const std::string& name, Module& module, Options options = {}) {
    return attach(name, detail::tensors_of(module), options);
  }

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// The module gets tensors of its own with the values of now, and this object is empty.
  void detach();

  const std::string& name() const;
  Policy policy() const;
  /// Which of the workers this process is.
  int worker() const;
  /// How many updates were applied.
  uint64_t version() const;

  /// Copies the values of one version into another module of the same kind; gives the version. Steps by gradients of
  /// that module count as computed from it.
  template <class Module>
  uint64_t pull(Module& module) {
    return pull(detail::tensors_of(module), false);
  }
  /// The same with the moving average in place of each trained parameter, to evaluate it; it is not one to compute
  /// gradients from. Throws if the model keeps none.
  template <class Module>
  uint64_t pull_average(Module& module) {
    return pull(detail::tensors_of(module), true);
  }
  /// Updates the model by the gradients of the bound module; parameters without one stay. Under Locked, at once or not
  /// at all. Throws, and changes nothing, if a gradient does not fit or another process keeps the lock for too long.
  Update step();
  /// By those of another module.
  template <class Module>
    requires(!std::is_same_v<Module, const std::vector<at::Tensor>> && !std::is_same_v<Module, std::vector<at::Tensor>>)
  Update step(Module& module) {
    return step_by(detail::tensors_of(module));
  }
  Update step(std::vector<at::Tensor> gradients);

  struct Snapshot {
    uint64_t version = 0;
    bool torn = false;  ///< Hogwild only, and counted: it could not be had whole in time
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    std::vector<std::pair<std::string, at::Tensor>> average;  ///< of the trained parameters, if the model keeps one
  };
  /// A copy of all parameters and buffers as they were at one instant. Holds nobody up.
  Snapshot snapshot();

  /// Writes all of it, what the optimizer remembers included, as it was at one instant, into a directory, where it
  /// replaces an earlier one at once or not at all. Training goes on meanwhile.
  void save(const std::string& directory);
  /// The model becomes what was saved, its version and learning rate too, and goes on from there to the bit. Throws,
  /// and changes nothing, naming what differs, if it was of another module or optimizer. Under Hogwild nobody may step
  /// meanwhile.
  void load(const std::string& directory);

  void set_lr(double lr);
  double lr() const;
  Stats stats() const;
  /// The last updates that were applied, at most 1,024, the oldest first.
  std::vector<Update> history() const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  static detail::OptimizerSettings plain_sgd();
  static Model create(const std::string& name, std::vector<detail::NamedTensor> tensors,
                      detail::OptimizerSettings settings, Options options);
  static Model attach(const std::string& name, std::vector<detail::NamedTensor> tensors, Options options);
  uint64_t pull(const std::vector<detail::NamedTensor>& into, bool average);
  Update step_by(const std::vector<detail::NamedTensor>& tensors);
  State& state() const;

  std::unique_ptr<State> state_;
};

}  // namespace farad::shared
