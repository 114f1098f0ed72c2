#pragma once

#include <farad/worker.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/service.h"
#include "collectives/service.h"
#include "optim/service.h"
#include "ref/table.h"
#include "rpc/agent.h"

namespace farad::detail {

/// What a Worker is made of, and what its futures and references keep alive.
class WorkerCore final : public FutureHost, public rpc::AgentHost, public std::enable_shared_from_this<WorkerCore> {
 public:
  /// `world` if it is to live in a simulation.
  static std::shared_ptr<WorkerCore> join(WorkerOptions options, net::sim::World* world);
  /// Worker::join for tests: on the simulated network, threads and clock of `world`. Called by its threads only.
  static Worker join_in(net::sim::World& world, WorkerOptions options);
  /// Whether one has in this process, or in the one that it was forked off from, simulated ones aside.
  static bool has_joined();
  ~WorkerCore() override;

  rpc::Agent& agent() { return *agent_; }
  ref::Table& table() { return *table_; }
  autograd::Service& gradients() { return *gradients_; }
  optim::Service& optim() { return *optim_; }
  collectives::Service& groups() { return *groups_; }
  const WorkerInfo& self() const { return members_[agent_->fabric().self().rank.value]; }
  const std::vector<WorkerInfo>& members() const { return members_; }
  /// Throws Error, naming the function that is to be called, if there is no such member.
  base::Rank rank_of(const Peer& peer, std::string_view function) const;
  const WorkerInfo& find(std::string_view name) const;

  void close();
  void leave();
  void end(const std::string& why);
  Debug debug() const;

  // As the host of futures:
  void wait(FutureCore& core, std::chrono::steady_clock::time_point deadline) override { agent_->wait(core, deadline); }
  void run(std::function<void()> continuation) override;
  std::function<void()> bind(std::function<void()> continuation) override;
  std::chrono::steady_clock::time_point now() const override;

  /// Lets values go that nobody refers to any more.
  void discard(std::function<void()> end);

  /// For its life, this worker is Worker::current() on this thread.
  class Scope {
   public:
    explicit Scope(WorkerCore& core);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    WorkerCore* before_;
  };
  static WorkerCore* current();
  static WorkerCore& of(Worker& worker) { return *worker.core_; }
  /// The Worker that current() refers to; it does not own the core.
  Worker& handle() { return *handle_; }

 private:
  WorkerCore() = default;
  ref::Table::Services services();
  uint64_t birth_of(base::Rank rank) const;
  void report_what_is_held() const;
  std::unique_ptr<autograd::Service> make_gradients();
  std::unique_ptr<optim::Service> make_optim();
  std::unique_ptr<collectives::Service> make_groups();
  void check_may_end(const char* what) const;
  /// A task that close() and leave() wait for, and that must not call them.
  std::function<void()> as_work(std::function<void()> task);
  void run_as_worker(const std::function<void()>& task) override;
  std::weak_ptr<void> life() override { return weak_from_this(); }
  rpc::References& references() override { return *table_; }
  rpc::Interceptor* above() override { return gradients_.get(); }
  rpc::Mailbox* collectives() override { return groups_.get(); }
  void on_lost(net::Peer peer) override { optim_->on_lost(peer.rank); }

  // Constant once joined: a member that restarts keeps its name and rank.
  std::vector<WorkerInfo> members_;
  std::unordered_map<std::string, base::Rank> ranks_;
  std::shared_ptr<ref::Table> table_;
  std::unique_ptr<autograd::Service> gradients_;  // Outlives the agent, whose threads use it,
  std::unique_ptr<optim::Service> optim_;         // as do these.
  std::unique_ptr<collectives::Service> groups_;
  net::Cost cost_of_ends_;
  std::unique_ptr<rpc::Agent> agent_;
  std::unique_ptr<Worker> handle_;
  std::optional<base::Log> log_;
};

}  // namespace farad::detail
