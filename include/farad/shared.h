#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/optimizer.h>
#include <farad/fields.h>

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
  bool buffer = false;  ///< what a module remembers beside its parameters, as its forward pass leaves it
};

/// Parameters, then buffers, of a module or of its holder.
template <class Module>
std::vector<NamedTensor> tensors_of(Module& module) {
  if constexpr (requires { module.named_parameters(); }) {
    std::vector<NamedTensor> all;
    for (const auto& item : module.named_parameters())
      all.push_back({item.key(), item.value(), item.value().requires_grad()});
    for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value(), false, true});
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
  Locked,      ///< one at a time; each wholly or not at all, also if its process is killed
  Hogwild,     ///< all at once: elements may be lost where two write the same one, updates are not
  AllReduced,  ///< in step: each update is by the mean of the gradients of all members, everywhere or nowhere
  Managed,     ///< one process, the manager, applies what the others send it
  Averaged,    ///< each process trains a copy of its own; the copies are averaged now and then
};

/// What one worker brought for an update that was made of several.
struct Contribution {
  int worker = -1;
  uint64_t sequence = 0;
  uint64_t version_read = 0;
  double samples = 1;
};

/// One update, as it was applied.
struct Update {
  int worker = -1;            ///< by whom
  uint64_t sequence = 0;      ///< the how-manieth of that worker; 0 if it was made of several
  uint64_t version_read = 0;  ///< of the model that its gradients were computed from
  uint64_t version = 0;       ///< of the model after it; Managed: 0 to whoever submits it
  /// AllReduced, Managed and Averaged: what it was made of, in the order in which it was summed. Told to observers.
  std::vector<Contribution> contributions = {};

  uint64_t staleness() const { return version > version_read ? version - 1 - version_read : 0; }
};

/// Is told of an update by the process that applies it, and within it: what it throws undoes the update, but under
/// Hogwild and Averaged, where it stays. The gradients are those that the optimizer used; who
/// keeps them copies them. The bound module already has the new values. The model must not be called from there.
///
/// Where gradients of several are brought together, they are their mean, and the update has its contributions. Under
/// Averaged it is told of each step on the process's own copy, whose version is that of the last average, and of each
/// average that this process has made for all, with contributions and without gradients; where a copy among them was
/// late, the values before take part too.
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
  /// Of create(), under AllReduced and Averaged: how many processes the first round waits for. Others may come later.
  int members = 1;
  /// Of create(), under Managed: how many gradients a worker may have waiting for the manager, up to 8.
  int queue = 2;
  /// Managed: the manager applies the mean of so many gradients, or of those that came within a time from the first on.
  /// A worker that does its work, because it ended, waits for none and applies by its own `gather`.
  int gather = 1;
  std::chrono::milliseconds gather_within{10};
  /// Averaged: step() averages after so many steps of this process; 0 = only average() does.
  int average_every = 16;
  /// Averaged: how long the members that have come wait for one that is late before they go on without it. 0 = as long
  /// as it lives. What they average meanwhile stays when the late one comes: see average().
  std::chrono::milliseconds wait_for_late{0};
  /// Of attach(): this process only looks, pulls and takes snapshots; what would change the model throws. There may be
  /// any number of those, and none is a worker. The bound module lies in the shared values, also under Averaged.
  bool read_only = false;
  /// Of this process. Costs nothing if there is none.
  Observer observer = {};
};

/// What is known of the updates so far. Counts are exact under each policy; but under Hogwild a process that is killed
/// as it counts may have added to `version` and not yet to its own.
struct Stats {
  struct Worker {
    int worker = -1;
    int pid = 0;
    bool alive = false;
    uint64_t begun = 0;     ///< updates that it set out to apply
    uint64_t applied = 0;   ///< and that were
    uint64_t rejected = 0;  ///< or that were refused, with an error
    double mean_staleness = 0;
    uint64_t max_staleness = 0;
  };
  uint64_t version = 0;      ///< how many updates were applied
  uint64_t rolled_back = 0;  ///< half done by a process that was killed, and undone
  uint64_t cut_off = 0;      ///< Hogwild: half done by a process that was killed
  uint64_t rejected = 0;     ///< refused with an error: a round that failed, no room in time, no lock in time
  uint64_t waiting = 0;      ///< Managed: left for the manager. Averaged: steps that no average has in it yet
  uint64_t lost = 0;         ///< begun and never applied, because their process ended
  uint64_t discarded = 0;    ///< Managed: half written by a process that was killed
  uint64_t duplicates = 0;   ///< Managed: taken again after a manager was killed, and not applied again
  uint64_t members_lost = 0, managers_lost = 0;  ///< processes that ended without leaving
  uint64_t snapshots = 0;
  uint64_t snapshot_retries = 0;  ///< because the model changed meanwhile
  uint64_t snapshot_waits = 0;    ///< that had those who change it wait, because it did so all the time
  uint64_t snapshots_torn = 0;    ///< Hogwild: could not be had whole in time
  double mean_staleness = 0;
  uint64_t max_staleness = 0;
  /// Whether another model has the name now, because it was created between the end of the process that served the name
  /// and its takeover by another one. This one goes on for those who have it, but who looks for the name finds the
  /// other.
  bool name_lost = false;
  std::vector<Worker> workers;  ///< those that there are or were
};

/// A seed for the random numbers of one stream, from that of the whole training: whatever the seeds, streams are of
/// unrelated numbers, and no two of the first 2^32 of one seed are the same. Not in the lower half either, which is all
/// that libtorch's generators for the CPU use. Which stream is whose: Model::stream().
uint64_t stream_seed(uint64_t seed, uint64_t stream);

/// One model of this machine: what one sends to another process, as an argument or a result of a call, for it to
/// attach. Unlike a name it is of no other model that comes to have that name later.
struct Handle {
  std::string name;
  uint64_t identity = 0;
  std::string machine;
  FARAD_FIELDS(name, identity, machine)
};

/// A module's parameters, buffers and optimizer state in a segment of shared memory, which any process of this machine
/// finds by its name, or by a handle that it was sent. The segment ends with the last process that uses it, however
/// that one ends.
///
/// The module that is given to create() or attach() is bound to the segment: its tensors lie there, and it sees what
/// others make of them at once. Whoever computes gradients while others train pulls the values into a module of its own
/// first, so that all of them are of one version. (Under AllReduced it need not: nothing changes between the rounds.
/// Under Averaged the bound module lies in a copy of this process.) Gradients are read where the module has them and
/// copied at once; whether they are set to zero or to nothing afterwards makes no difference.
///
/// Buffers that a forward pass of the bound module changes, such as the statistics of a BatchNorm, change in the
/// segment there and then: outside any update, under no lock, unseen by those who copy, and beside whoever else does
/// the same. So train a module with buffers by one of its own, which is pulled into and stepped by.
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
  /// the module, a type or the version of libtorch is another one; Timeout if there is none in time. A model has 64
  /// workers at once: who comes beyond is a reader, until it steps when one of them has left.
  template <class Module>
  static Model attach(const std::string& name, Module& module, Options options = {}) {
    return attach(Handle{name, 0, {}}, detail::tensors_of(module), options);
  }
  /// The same by a handle. Throws Error if it is of another machine or another user, or if the name has gone to another
  /// model.
  template <class Module>
  static Model attach(const Handle& handle, Module& module, Options options = {}) {
    return attach(handle, detail::tensors_of(module), options);
  }

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// The module gets tensors of its own with the values of now, and this object is empty.
  void detach();

  const std::string& name() const;
  /// For another process to attach.
  Handle handle() const;
  Policy policy() const;
  /// Which of the workers this process is; -1 for a reader. When one has ended, another one may get its number.
  int worker() const;
  /// The how-manieth process this is that has joined, from 0 on. No other one ever has that number, so what it draws
  /// with stream_seed(seed, stream()) nobody else has drawn before.
  uint64_t stream() const;
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
  /// Updates the model by the gradients of the bound module; parameters without one stay. Throws, and changes nothing,
  /// if a gradient does not fit or another process keeps this one waiting for too long.
  ///
  /// `samples`: over how many the gradients are the mean of; where those of several processes come together, that is
  /// their weight.
  ///   AllReduced: returns once all members have called it, and the model is stepped by the mean of all their samples.
  ///     If one of them ends before, all others get PeerLost, and nothing is changed; they can go on by calling it
  ///     again. One that detaches is not waited for.
  ///   Managed: returns once the gradients are left for the manager, which may be at once. If a manager ends, whoever
  ///     waits for it does its work.
  ///   Averaged: steps the copy of this process, by an optimizer of its own, and then averages if it is time to. If
  ///     only that fails, the step stands, and the next one tries to average again. That counts no step twice, also if
  ///     the average came about after all.
  Update step(double samples = 1);
  /// By those of another module, whose buffers come with them, as its forward pass has left them: they become those of
  /// the model in the same update. Where updates of several processes come one after the other, the last one's stay;
  /// where one update is made of several, each becomes the mean by samples of those that brought it (of whole numbers,
  /// the first), as under Averaged when the copies are averaged. A module without any buffers brings none.
  template <class Module>
    requires(!std::is_arithmetic_v<Module> && !std::is_same_v<std::remove_const_t<Module>, std::vector<at::Tensor>>)
  Update step(Module& module, double samples = 1) {
    return step_by(detail::tensors_of(module), samples);
  }
  /// By these, one for each trained parameter, in their order; buffers stay.
  Update step(std::vector<at::Tensor> gradients, double samples = 1);

  /// backward() from `loss` and a step by what it gives, as one: farad's engine takes less time than libtorch's for a
  /// small graph, and no `.grad` is read, left or cleared. Parameters that the loss does not reach stay. Leaves that
  /// are none of the module's get nothing, and calls to other workers belong into a Context's backward: with one in the
  /// graph this throws, and changes nothing.
  Update learn(const at::Tensor& loss, double samples = 1);
  /// The same where the loss was computed from another module.
  template <class Module>
    requires(!std::is_arithmetic_v<Module>)
  Update learn(const at::Tensor& loss, Module& module, double samples = 1) {
    return learn_by(loss, detail::tensors_of(module), samples);
  }

  /// Managed: makes this process the manager, unless another one that lives is, and applies one update by the gradients
  /// that come within `wait`, or that are there if that is 0. By how many: 0 if none came. Who manages calls this in a
  /// loop.
  size_t manage(std::chrono::milliseconds wait);
  /// Managed: waits until all that this process has submitted is applied.
  void settle();
  /// Averaged: the copies of all members become their mean, weighted by the samples since the last time; waits for
  /// them. Gives the version of it. What optimizers remember stays with each process. A copy without which others have
  /// averaged since it was last renewed, because it was late or is new, has the weight of its samples beside all that
  /// went into those averages, and so replaces nothing that they have brought.
  uint64_t average();

  struct Snapshot {
    uint64_t version = 0;
    bool torn = false;  ///< Hogwild only, and counted: it could not be had whole in time
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    std::vector<std::pair<std::string, at::Tensor>> average;  ///< of the trained parameters, if the model keeps one
  };
  /// A copy of all parameters and buffers as they were at one instant. Holds nobody up, unless the model changes so
  /// often that eight tries were in vain: then one copy is made under the lock or, under Hogwild, while those who write
  /// pause for up to 200 ms, and stats() counts that.
  Snapshot snapshot();

  /// Writes all of it, what the optimizer remembers included, as it was at one instant, into a directory, where it
  /// replaces an earlier one at once or not at all. Training goes on meanwhile. (Under Averaged, the last average: what
  /// the members' own optimizers remember is not in there.) Throws, and changes nothing, if what is there is of another
  /// optimizer or number of parameters, or no checkpoint of ours.
  void save(const std::string& directory);
  /// The model becomes what was saved, its version and learning rate too, and goes on from there to the bit. Throws,
  /// and changes nothing, naming what differs, if it was of another module or optimizer. Nobody may step meanwhile
  /// under Hogwild; nobody else may have joined under Averaged.
  void load(const std::string& directory);

  /// Of all processes, from the next update on. Throws, and changes nothing, if it is negative or no number.
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
  static Model attach(const Handle& handle, std::vector<detail::NamedTensor> tensors, Options options);
  uint64_t pull(std::vector<detail::NamedTensor> into, bool average);
  Update step_by(const std::vector<detail::NamedTensor>& tensors, double samples);
  Update learn_by(const at::Tensor& loss, const std::vector<detail::NamedTensor>& tensors, double samples);
  State& state() const;

  std::unique_ptr<State> state_;
};

}  // namespace farad::shared
