#pragma once

#include <c10/core/GradMode.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/engine/deferred_node.h"
#include "autograd/torch_compat.h"
#include "base/mutex.h"
#include "collectives/algorithms.h"
#include "collectives/letter.h"
#include "collectives/meetings.h"
#include "net/fabric.h"
#include "wire/buffer_pool.h"

namespace farad::collectives {

class Session;

/// What a group needs of its worker.
struct Services {
  net::Fabric& fabric;
  std::function<std::string(base::Rank)> name_of;
  std::function<void(const base::Status& why)> warn;
  std::function<std::weak_ptr<void>()> life;  ///< expires when the fabric may no longer be used
  std::function<int64_t()> context;           ///< the one that is current on this thread; 0 = none
  /// It takes part in the passes of that context from now on.
  std::function<void(const autograd::compat::Ptr<autograd::DeferredNode>& node)> record;
  /// To which operation of another group that worker has come, as far as is known here; for messages.
  std::function<std::string(base::Rank, const Session& asks)> heard_elsewhere;
  /// For what reductions make of their inputs.
  std::shared_ptr<wire::BufferPool> results = wire::BufferPool::make(size_t{512} << 20);
  /// Most that is kept of what one worker sends for groups that were not made here yet.
  size_t early_bytes = size_t{1} << 30;
};

/// One worker's place in one group: sends what it contributes, and waits for what the others do. Any thread.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(GroupId id, int rank, std::chrono::milliseconds timeout, const Services& services,
          const Algorithms& algorithms = {});

  const GroupId& id() const { return id_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(id_.ranks.size()); }
  const Services& services() const { return services_; }
  const Algorithms& algorithms() const { return algorithms_; }
  /// That which is current on this thread; 0 = none, and once the worker is gone.
  int64_t context() const;
  /// It takes part in the passes of that one from now on.
  void record(const autograd::compat::Ptr<autograd::DeferredNode>& node) const;
  /// Of a member: `rank 1 (worker1)`, by its rank among all workers, as messages say it.
  std::string name_of(int member) const;

  Path begin(uint64_t channel);
  void begin(const Path& exchange);
  void end(const Path& path);
  /// Tells `members` that this one takes no part in backwards of that exchange from the `since`-th on.
  void say_ended(const Path& exchange, const std::vector<int>& members, uint64_t since);

  /// Tells `members` that this one will not come to that meeting.
  void say_failed(const Path& path, const std::vector<int>& members, const base::Status& why);
  /// This member takes no part in what is left of the current section; all go on with the next one, once those that
  /// wait for it have heard `why`.
  void skip_section(const base::Status& why);
  /// Whoever started that does not wait for it any more. Nothing happens if it is over.
  void abandon(const Path& path);

  /// Of meetings that wait for each other, in rounds, so that not everybody hears from everybody.
  struct Chain {
    /// Later ones have more patience, so that whoever waits for the one that does not come says so first.
    int round = 0;
    std::vector<int> concerned = {};  ///< those that hear if it fails here, beside whom it goes to and comes from
  };
  struct Request {
    Path path;
    Signature signature;
    std::vector<at::Tensor> tensors;  ///< by member; undefined where there is nothing
    std::vector<bool> requires_grad;  ///< likewise
    std::vector<int> to;              ///< who gets a letter, with or without a tensor
    std::vector<int> from;            ///< who is waited for
    bool can_return = true;           ///< see Contribution
    /// This member's grad mode.
    bool records = c10::GradMode::is_enabled();
    Chain chain = {};
    Path other_name = {};  ///< by which others may call it, if not empty
  };
  struct Outcome {
    base::Status status;
    std::map<int, Contribution> came;
  };
  /// A meeting that has begun: what this member contributes is sent. It is left when this ends before it is over.
  class Attendance {
   public:
    Attendance(Attendance&&) = default;
    Attendance& operator=(Attendance&& other) noexcept;
    ~Attendance() { leave(); }
    /// Once; takes messages in meanwhile. Not where messages are taken in.
    Outcome wait();

   private:
    friend class Session;
    struct Awaited;
    explicit Attendance(std::shared_ptr<Session> session);
    void leave();

    std::shared_ptr<Session> session_;
    std::shared_ptr<void> alive_;  // Keeps the fabric; null if it was gone.
    Path path_;
    base::TimePoint deadline_ = base::never;
    std::shared_ptr<Awaited> awaited_;  // Null once it is over.
  };
  Attendance attend(Request request);
  /// The same, and waits.
  Outcome meet(Request request);
  /// The same without waiting, and with no limit of time: `done` is called once, by whoever brings it about, and is
  /// short.
  void start(Request request, std::function<void(Outcome)> done);

  /// Who has not come to that meeting here, and where those are instead, as far as that is known; for messages.
  std::string who_is_missing(const Path& path);
  /// To which operation that worker has come that nobody here takes part in yet; empty if none is known.
  std::string heard_of(base::Rank rank);

  // On the driving thread:
  void on_letter(net::Peer from, Letter&& letter);
  void on_lost(net::Peer peer, const base::Status& why);
  /// Whoever waits does so no longer.
  void close(const base::Status& why);

 private:
  int member_of(base::Rank rank) const;
  void start(Request request, base::TimePoint deadline, std::function<void(Outcome)> done);
  net::Sent send(int member, const Letter& letter, base::TimePoint deadline);
  void greet(int member, const Path& path, base::TimePoint deadline, Effects& effects);
  void met(net::Peer peer);
  void note_met(net::Peer peer, Effects& effects) REQUIRES(mutex_);
  void perform(Effects& effects);
  base::Status closed() const;
  std::map<int, std::string> heard_elsewhere() const;

  const GroupId id_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  const Services services_;
  const Algorithms algorithms_;

  base::Mutex mutex_;
  Meetings meetings_ GUARDED_BY(mutex_);
  std::map<Path, std::function<void(Outcome)>> waiting_ GUARDED_BY(mutex_);
  std::map<int, base::Incarnation> met_ GUARDED_BY(mutex_);   // the latest life of each that had to do with us
  std::map<int, base::Incarnation> lost_ GUARDED_BY(mutex_);  // the latest that was lost
};

/// The time in which one operation goes on.
class Ticket {
 public:
  Ticket(std::shared_ptr<Session> session, uint64_t channel = 0)
      : session_(std::move(session)), path_(session_->begin(channel)) {}
  ~Ticket() { session_->end(path_); }
  Ticket(const Ticket&) = delete;

  const std::shared_ptr<Session>& session() const { return session_; }
  Path exchange(uint64_t which) const {
    auto path = path_;
    path.push_back(which);
    return path;
  }

 private:
  const std::shared_ptr<Session> session_;
  const Path path_;
};

}  // namespace farad::collectives
