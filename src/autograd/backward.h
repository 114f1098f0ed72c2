#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/contexts.h"
#include "autograd/outbox.h"
#include "autograd/pass_mail.h"
#include "autograd/recorder.h"
#include "autograd/running_pass.h"
#include "net/fabric.h"
#include "net/in_place.h"

namespace farad::autograd {

/// Runs the backward passes of a worker: carries out what the protocol (pass/) wants done with the engine (engine/),
/// the fabric and threads.
///
/// The thread that calls backward runs its worker's nodes and takes messages in between. Elsewhere nodes run where
/// remote functions do: where the message was taken in, if that has been short so far, else on the executor. One thread
/// at a time runs one worker's part in one pass; passes of one context take turns only for the few instructions that
/// decide what may run next.
class Backward {
 public:
  struct Services {
    net::Fabric& fabric;
    /// On another thread, after a moment in which more of the kind may come together.
    std::function<void(std::function<void()> task)> later;
    /// Where remote functions run. The task notes what it cost.
    std::function<void(const net::Cost& cost, std::function<void()> task)> run;
    std::function<void(const std::function<void()>& task)> run_as_worker;  ///< here, with a current worker
    std::function<void(const base::Status& why)> warn;
  };
  Backward(Services services, Contexts& contexts, Recorder& recorder);

  struct Call {
    Roots roots;
    PassOptions options;
    bool fast = false;
    Limit limit = {};
  };
  /// From now on; 0 = none.
  Limit limit_of(std::chrono::milliseconds timeout) const;
  /// Returns when the pass has succeeded everywhere, with what was captured; throws Aborted if it has failed. Not where
  /// messages are taken in.
  std::vector<at::Tensor> run(const std::shared_ptr<LocalContext>& context, Call call);
  /// For a node that has to compute what lies behind it again: runs `compute` in a recording of its own, then a pass
  /// within the one that the node is run by, from those results that have a gradient. Returns when that is complete;
  /// what it finds for leaves counts if the outer pass does. Throws Aborted if it has failed.
  void run_within(const RunningPass& outer, const std::vector<at::Tensor>& gradients,
                  const std::function<std::vector<at::Tensor>()>& compute);
  /// The gradients of all passes that had ended at their roots before this was called.
  /// Throws if those of a leaf cannot be added up.
  GradientStore gradients(const std::shared_ptr<LocalContext>& context);
  /// One of them; undefined if there is none.
  at::Tensor gradient(const std::shared_ptr<LocalContext>& context, const at::Tensor& leaf);

  /// On the driving thread.
  void on_message(net::Peer from, wire::Message&& message);
  /// One that says of a function which was run again in vain. On the driving thread.
  base::Status on_vain(std::span<const char> body);
  /// A message of passes did not go, though it was posted: a tensor in it was changed while it was written.
  void on_unsent(net::Peer to, const wire::Message& message, const base::Status& why);

  /// Before a call in that context goes to that worker, which may look at gradients there. Any thread.
  void send_commits(const LocalContext& context, base::Rank to) { post(outbox_.take_commits(context, to)); }
  /// What waits for others to go with it goes. Any thread.
  void send_all() { post(outbox_.take_all()); }

  /// `task` on the timer's thread, which must not wait: neither for a device nor for the end of a graph. Such is left
  /// to the executor.
  void run_on_timer(const std::function<void()>& task);

  /// How many messages of passes this worker has sent. Any thread.
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

  /// Does what came of something that happened to a context. Any thread.
  void perform(const std::shared_ptr<LocalContext>& context, LocalContext::Work&& work);

 private:
  using Work = LocalContext::Work;
  class Turn;

  void wait_until_settled(const std::shared_ptr<LocalContext>& context);
  void complete(const std::shared_ptr<LocalContext>& context, Part& part, Work&& work);
  void run_to_the_end(const std::shared_ptr<LocalContext>& context, Part& part, Work& work);
  void begin_part(const std::shared_ptr<LocalContext>& context, Work::Begun& begun);
  base::Status make_evaluator(Part& part, const Entries& entries);
  /// A thread's turn at a part, from when it has something to do until it has to wait.
  template <class Task>
  void take_turn(const std::shared_ptr<LocalContext>& context, net::Cost& cost, const Task& work);
  void run_part(const std::shared_ptr<LocalContext>& context, Part& part);
  base::Status run_next(const std::shared_ptr<LocalContext>& context, Part& part, LocalContext::Next& next,
                        RunningPass& running);
  base::Status begin_deferred(const std::shared_ptr<LocalContext>& context, Part& part, NodeIndex node,
                              Part::Deferred& deferred);
  void give_up_deferred(Part& part);
  void perform_here(const std::shared_ptr<LocalContext>& context, Work& work);
  void perform_light(const std::shared_ptr<LocalContext>& context, Work& work);
  void send(const std::shared_ptr<LocalContext>& context, Effects::Outgoing& outgoing, std::vector<at::Tensor> tensors);
  void keep(base::Rank to, Outbox::Letter letter);
  void post(std::vector<Outbox::Parcel> parcels);
  void post(Outbox::Parcel& parcel);
  void forget(const std::shared_ptr<LocalContext>& context, RerunId rerun);
  bool hand_over(Outbox::Parcel& parcel);
  void record_sent(LocalContext& context, base::Rank to, PassMail& mail, const std::vector<at::Tensor>& tensors);
  base::Status record_received(const std::shared_ptr<LocalContext>& context, net::Peer from, const PassMail& mail,
                               const std::vector<at::Tensor>& tensors);
  /// `placed`: whether tensors lie on the devices they belong to.
  void on_mail(net::Peer from, PassMail& mail, std::vector<at::Tensor> tensors, const base::Status& placed);
  void refuse(const std::shared_ptr<LocalContext>& context, net::Peer from, const PassMail& mail,
              const base::Status& why);
  Work failed(LocalContext& context, PassId pass, const base::Status& why);
  void fail(const std::shared_ptr<LocalContext>& context, PassId pass, const base::Status& why);
  Work timed_out(LocalContext& context, const Part& part);

  static thread_local bool is_timer_;  // See run_on_timer().

  const Services services_;
  Contexts& contexts_;
  Recorder& recorder_;
  std::atomic<uint64_t> sent_{0};
  Outbox outbox_;
  // What begins a part and what goes on with it, of all passes: those of one worker are mostly of one model.
  net::Cost cost_of_beginning_, cost_of_going_on_;
  const net::Cost unknown_cost_;  // Of what is always left to the executor.
};

}  // namespace farad::autograd
