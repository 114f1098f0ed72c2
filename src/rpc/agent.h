#pragma once

#include <farad/worker.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/log.h"
#include "net/fabric.h"
#include "net/in_place.h"
#include "rpc/delayed.h"
#include "rpc/ending.h"
#include "rpc/incall.h"
#include "rpc/interceptor.h"
#include "rpc/mailbox.h"
#include "rpc/operator_rules.h"
#include "rpc/pending.h"
#include "rpc/references.h"

namespace farad::rpc {

/// What the worker that an agent belongs to does for it.
class AgentHost {
 public:
  virtual ~AgentHost() = default;
  /// Runs it so that it finds its worker as the current one.
  virtual void run_as_worker(const std::function<void()>& task) = 0;
  /// Expires when the agent may no longer be used.
  virtual std::weak_ptr<void> life() = 0;
  virtual References& references() = 0;
  /// What a layer above adds to calls; null if there is none.
  virtual Interceptor* above() = 0;
  /// Who takes messages of Kind::Collective; null if nobody does.
  virtual Mailbox* collectives() = 0;
  /// That life of a peer is over, and all of this layer that concerned it has ended. On the driving thread: short.
  virtual void on_lost(net::Peer peer) = 0;
};

/// The calls of one worker: those it makes and those it takes.
///
/// Threads: calls are made on any thread. Replies are taken in by whoever drives, and complete the call right there.
/// Functions run on the executor, which grows while they wait, so calls nest to any depth; those that have been short
/// so far run on the resident, if it took their call in (net/in_place.h). No reply ever waits for a function to end.
class Agent final : private net::Sink {
 public:
  struct Options {
    std::chrono::milliseconds timeout{60'000};  // 0 = none
    int threads = 0;                            // 0 = one per core
    OperatorRules operators = {};
    detail::ValueLimits limits = {};  // of arguments and results
    bool stacks = false;              // Failures are told with their stack.
  };

  /// Joins the group; throws what Fabric::join throws. `host` must outlive it.
  Agent(net::FabricOptions fabric, Options options, AgentHost& host);
  ~Agent() override;

  net::Fabric& fabric() { return *fabric_; }
  base::Executor& executor() { return executor_; }
  net::InPlace& in_place() { return in_place_; }
  std::chrono::milliseconds timeout() const { return options_.timeout; }  ///< of calls that say none; 0 = none
  const detail::ValueLimits& limits() const { return options_.limits; }
  /// Tells the name of a member; of a rank that is none's, which may come by message, that. May outlive the agent.
  std::function<std::string(base::Rank)> naming() const;

  detail::Packet call(base::Rank to, detail::Outcall call, const CallOptions& options);
  void start(base::Rank to, detail::Outcall call, const CallOptions& options,
             std::shared_ptr<detail::FutureCore> future, std::function<void(detail::Packet)> done);
  /// Around whatever may still make calls; close() and leave() wait for its end. Calls do it themselves.
  void begin_work() { ending_->begin_work(); }
  void end_work() { ending_->end_work(); }
  /// Work that begins after that time, on a thread that others need as well: the task must be short, and must not throw
  /// or wait. Dropped if the worker ends before. Any thread.
  void run_after(base::Duration delay, std::function<void()> task);
  /// Like Driver::wait, for what anybody completes.
  void wait(detail::FutureCore& core, base::TimePoint deadline);

  void barrier() { ending_->barrier(); }
  void leave();
  /// Graceful: see Worker::close. The lost are named by the Status.
  base::Status close();
  /// Adds the calls in flight.
  void describe(Debug& debug) const;
  /// At once. Twice is fine.
  void end(const std::string& why);
  bool ended() const { return ending_->ended(); }

 private:
  friend class Incall;

  void on_message(net::Peer from, wire::Message&& message) override;
  void on_lost(net::Peer peer, const base::Status& why) override;
  void on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) override;

  void take_call(net::Peer from, wire::Message&& message);
  net::Cost& cost_of(const CallHeader& call);
  void take_reply(net::Peer from, wire::Message&& message);
  void take_late_reply(net::Peer from, uint64_t id, const ReplyHeader& header);
  void take_cancel(net::Peer from, uint64_t id);
  void cancel_returned(std::shared_ptr<detail::FutureCore> future);
  void finished(const std::shared_ptr<Incall>& call);

  enum class Watch { ByTimer, ByCaller };
  /// `watch`: who ends it when its time is up. Until it is on its way, the caller does in any case.
  uint64_t send(base::Rank to, detail::Outcall call, base::TimePoint since, base::TimePoint deadline,
                std::chrono::milliseconds timeout, Watch watch, std::function<void(Outcome&&)> done);
  base::Incarnation post(base::Rank to, wire::Message message);
  /// Tells the callee of a call that was given up. It is answered once it has ended there, if it kept something.
  void tell_given_up(const PendingCall& call, uint64_t id);
  void expire_calls();
  std::exception_ptr error_of(const Outcome& outcome, base::Rank to, const Callee& callee);
  std::string name_of(base::Rank rank) const;
  /// What errors begin with: `[rpc] call of "f" to worker1`.
  std::string text_of(base::Rank to, const Callee& callee) const;

  /// Ends a call that was taken from pending_.
  void complete(const PendingCall& call, Outcome&& outcome);

  const Options options_;
  AgentHost& host_;
  std::unique_ptr<net::Fabric> fabric_;
  std::vector<std::string> names_;  // By rank; constant, for a member that restarts keeps its name.
  PendingCalls pending_;
  std::unique_ptr<Ending> ending_;

  mutable base::Mutex mutex_;
  std::map<std::pair<net::Peer, uint64_t>, std::shared_ptr<Incall>> running_ GUARDED_BY(mutex_);
  std::deque<std::pair<net::Peer, uint64_t>> early_cancels_ GUARDED_BY(mutex_);
  uint64_t one_way_ GUARDED_BY(mutex_) = 0;  // Numbers for those that have none of their caller's.

  std::unique_ptr<base::Parker> timer_parker_;
  std::atomic<base::TimePoint> timer_next_{base::never};
  Delayed delayed_;
  base::Executor executor_;
  net::InPlace in_place_;
  // Whoever drives. By id and name; only so many, for whoever calls may make up names.
  std::map<std::pair<detail::FunctionId, std::string>, net::Cost> costs_;
  net::Cost cost_of_others_;
  std::unique_ptr<base::Thread> timer_;
};

}  // namespace farad::rpc
