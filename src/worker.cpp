#include <farad/worker.h>

#include <farad/rref.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/options.h"
#include "base/status.h"
#include "wire/value.h"
#include "worker_core.h"

namespace farad {
namespace detail {
namespace {

thread_local WorkerCore* worker_here = nullptr;
thread_local bool in_continuation = false;
std::atomic<bool> somebody_has_joined{false};  // Of the process, like the threads that came with it.

/// How long news that nobody waits for may wait for more of their kind.
constexpr auto time_to_gather = std::chrono::milliseconds(5);

/// What errors of a call begin with.
std::string call_of(std::string_view function, const std::string& peer) {
  return "[rpc] call of \"" + std::string(function) + "\" to " + peer + ": ";
}

std::string no_worker(std::string_view name, const std::vector<WorkerInfo>& members) {
  std::string names;
  for (const auto& member : members) names += (names.empty() ? "" : ", ") + member.name;
  return "there is no worker \"" + std::string(name) + "\" in this group; there are: " + names;
}

}  // namespace

void not_packed(std::string_view function, const std::string& peer) {
  const auto why = base::status_of(std::current_exception());
  // Of other kinds are those that a value's own code has thrown, for whoever calls to catch.
  if (why.code() != base::Code::Invalid) throw;
  throw Error(call_of(function, peer) + why.message());
}

std::shared_ptr<WorkerCore> WorkerCore::join(WorkerOptions options, net::sim::World* world) {
  // A simulation must not depend on the machine that it runs on.
  const auto environment = world ? base::Environment::of({}) : base::Environment::process();
  base::complete(options, environment).raise();
  base::check(options).raise();
  std::string operators;
  rpc::OperatorRules rules;
  environment.read(base::Var::Operators, operators).raise();
  rpc::OperatorRules::parse(operators, rules).raise();
  std::shared_ptr<WorkerCore> core(new WorkerCore);
  // An alias without ownership: a Worker that owned its own core would keep it for ever.
  core->handle_.reset(new Worker(std::shared_ptr<WorkerCore>(std::shared_ptr<WorkerCore>(), core.get())));
  auto fabric = net::FabricOptions::from(options, environment);
  fabric.world = world;
  const auto log_level = fabric.log_level;
  const auto limits = fabric.limits;
  core->agent_ = std::make_unique<rpc::Agent>(
      std::move(fabric),
      rpc::Agent::Options{options.rpc_timeout, options.threads, std::move(rules), wire::value_limits(limits),
                          environment.number(base::Var::Stacks) != 0},
      *core);
  if (!world) somebody_has_joined = true;
  const auto& self = core->agent_->fabric().self();
  core->log_.emplace(self.name, log_level);
  core->table_ = std::make_shared<ref::Table>(self.rank, self.birth, core->services());
  for (const auto& member : core->agent_->fabric().members()) {
    core->members_.push_back({member.name, member.rank.value});
    core->ranks_.emplace(member.name, member.rank);
  }
  core->gradients_ = core->make_gradients();
  core->optim_ = core->make_optim();
  core->groups_ = core->make_groups();
  core->agent_->fabric().start();
  return core;
}

bool WorkerCore::has_joined() { return somebody_has_joined; }

Worker WorkerCore::join_in(net::sim::World& world, WorkerOptions options) {
  options.transport = "sim";
  return Worker(join(std::move(options), &world));
}

WorkerCore::~WorkerCore() {
  if (agent_) end("the worker was destroyed");
}

std::unique_ptr<autograd::Service> WorkerCore::make_gradients() {
  auto group = std::make_shared<autograd::Group>();
  const auto& self = agent_->fabric().self();
  group->self = self.rank;
  for (const auto& member : members_) group->members.emplace_back(static_cast<uint16_t>(member.rank));
  group->name_of = agent_->naming();
  autograd::Backward::Services services{
      agent_->fabric(), [this](std::function<void()> task) { agent_->run_after(time_to_gather, std::move(task)); },
      [this](const net::Cost& cost, std::function<void()> task) {
        task = as_work(std::move(task));
        if (!agent_->in_place().run_noting(cost, std::move(task))) task();
      },
      [this](const std::function<void()>& task) { run_as_worker(task); },
      [this](const base::Status& why) { log_->warning(why.message()); }};
  return std::make_unique<autograd::Service>(std::move(group), self.birth, std::move(services));
}

void WorkerCore::end(const std::string& why) {
  optim_->close();
  gradients_->backward().send_all();
  agent_->end(why);
  optim_->forget();
  table_->close();
}

/// References outlive the worker, so what they use of it is reached through a weak pointer.
ref::Table::Services WorkerCore::services() {
  const std::weak_ptr<WorkerCore> weak = weak_from_this();
  ref::Table::Services services;
  services.post = [weak](base::Rank to, wire::Message message) -> net::Sent {
    auto core = weak.lock();
    if (!core) return {{base::Code::Closed, "[ref] the worker of this reference is gone"}, {}};
    return core->agent_->fabric().post(to, std::move(message));
  };
  services.later = [weak](std::function<void()> task) {
    auto core = weak.lock();
    core ? core->run(std::move(task)) : task();
  };
  services.discard = [weak](std::function<void()> task) {
    auto core = weak.lock();
    core ? core->discard(std::move(task)) : task();
  };
  services.core = weak;
  services.name_of = agent_->naming();
  services.birth_of = [weak](base::Rank rank) -> uint64_t {
    auto core = weak.lock();
    return core ? core->birth_of(rank) : 0;
  };
  return services;
}

uint64_t WorkerCore::birth_of(base::Rank rank) const {
  const auto members = agent_->fabric().members();
  return rank.value < members.size() ? members[rank.value].birth : 0;
}

base::Rank WorkerCore::rank_of(const Peer& peer, std::string_view function) const {
  if (const auto* name = std::get_if<std::string>(&peer.who())) {
    if (const auto found = ranks_.find(*name); found != ranks_.end()) return found->second;
    throw Error(call_of(function, *name) + no_worker(*name, members_));
  }
  const auto* rank = std::get_if<int>(&peer.who());
  if (rank && *rank >= 0 && *rank < static_cast<int>(members_.size())) return base::Rank(static_cast<uint16_t>(*rank));
  const auto given = "rank " + (rank ? std::to_string(*rank) : std::get<Peer::NoRank>(peer.who()).text);
  throw Error(call_of(function, given) + "there is no " + given + " in a group of " + std::to_string(members_.size()));
}

const WorkerInfo& WorkerCore::find(std::string_view name) const {
  const auto found = ranks_.find(std::string(name));
  if (found == ranks_.end()) throw Error("[rpc] find(): " + no_worker(name, members_));
  return members_[found->second.value];
}

void WorkerCore::check_may_end(const char* what) const {
  if (!rpc::Incall::current() && !in_continuation) return;
  throw Error("[rpc] " + std::string(what) + " of " + self().name +
              " waits for the functions and continuations that run, so none of them may call it");
}

void WorkerCore::close() {
  check_may_end("close()");
  const auto status = agent_->close();
  report_what_is_held();
  table_->close();
  status.raise();
}

/// Whoever closes is done, so what is still referred to was forgotten somewhere, and its value lives on elsewhere.
void WorkerCore::report_what_is_held() const {
  constexpr size_t most_named = 8;
  const auto held = table_->handles();
  if (held.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(held.size(), most_named); ++i) {
    names += (i == 0 ? "" : "; ") + held[i].id + " at " + held[i].owner + ", " + held[i].origin;
  }
  if (held.size() > most_named) names += "; ...";
  log_->warning("[ref] close: ", held.size(), held.size() == 1 ? " reference is" : " references are",
                " still held here; let go of them before: ", names);
}

void WorkerCore::leave() {
  check_may_end("leave()");
  agent_->leave();
  table_->close();
}

Debug WorkerCore::debug() const {
  Debug debug;
  agent_->describe(debug);
  table_->describe(debug);
  gradients_->contexts().describe(debug);
  return debug;
}

void WorkerCore::run_as_worker(const std::function<void()>& task) {
  Scope scope(*this);
  task();
}

std::function<void()> WorkerCore::as_work(std::function<void()> task) {
  agent_->begin_work();
  return [this, task = std::move(task)] {
    {
      Scope scope(*this);
      const bool before = std::exchange(in_continuation, true);
      task();
      in_continuation = before;
    }
    agent_->end_work();
  };
}

void WorkerCore::run(std::function<void()> continuation) {
  // After the end there are no threads of ours, and whoever completed the future goes on itself. Before, that may be
  // the driver, which must not run what may wait.
  auto task = as_work(std::move(continuation));
  if (agent_->executor().post(std::move(task))) return;
  if (agent_->ended()) return task();
  const Refusal refusal(std::make_exception_ptr(
      Error("[rpc] what comes after a future of " + self().name +
            ": all threads wait, and the system has none to spare (ulimit -u; pids of a container)")));
  task();
}

void WorkerCore::discard(std::function<void()> end) {
  const auto task = as_work(std::move(end));
  if (!agent_->in_place().run(cost_of_ends_, task)) task();
}

std::function<void()> WorkerCore::bind(std::function<void()> continuation) {
  return gradients_->bind(std::move(continuation));
}

std::chrono::steady_clock::time_point WorkerCore::now() const { return agent_->fabric().runtime().now(); }

WorkerCore::Scope::Scope(WorkerCore& core) : before_(std::exchange(worker_here, &core)) {}
WorkerCore::Scope::~Scope() { worker_here = before_; }

WorkerCore* WorkerCore::current() { return worker_here; }

/// One that is being destroyed is nobody's host any more.
std::shared_ptr<FutureHost> current_host() { return worker_here ? worker_here->weak_from_this().lock() : nullptr; }

}  // namespace detail

Worker::Worker(std::shared_ptr<detail::WorkerCore> core) : core_(std::move(core)) {}
Worker::Worker(Worker&&) noexcept = default;

Worker& Worker::operator=(Worker&& other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}

Worker::~Worker() {
  if (core_ && core_.use_count() > 0) core_->end("the worker was destroyed");
}

Worker Worker::join(WorkerOptions options) { return Worker(detail::WorkerCore::join(std::move(options), nullptr)); }

Worker& Worker::current() {
  auto* core = detail::WorkerCore::current();
  if (!core) {
    throw Error(
        "[rpc] Worker::current(): this thread runs for no worker; remote functions, continuations and spawn's do");
  }
  return core->handle();
}

const WorkerInfo& Worker::self() const { return core_->self(); }
int Worker::rank() const { return core_->self().rank; }
int Worker::size() const { return core_->agent().fabric().size(); }
std::vector<WorkerInfo> Worker::members() const { return core_->members(); }
WorkerInfo Worker::find(std::string_view name) const { return core_->find(name); }
Caller Worker::with(CallOptions options) const { return Caller(core_->shared_from_this(), options); }
c10::IValue Worker::rpc_sync(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  return with({}).rpc_sync(to, name, std::move(args));
}
Future<c10::IValue> Worker::rpc_async(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  return with({}).rpc_async(to, name, std::move(args));
}
RRef<at::Tensor> Worker::remote(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  return with({}).remote(to, name, std::move(args));
}
void Worker::barrier() { core_->agent().barrier(); }
void Worker::leave() { core_->leave(); }
void Worker::close() { core_->close(); }
Debug Worker::debug() const { return core_->debug(); }

c10::IValue Caller::rpc_sync(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  const int rank = rank_of(to, name);
  return detail::unpack_result<c10::IValue>(wait(rank, outcall(rank, name, args)), name, [&] { return name_of(rank); });
}

Future<c10::IValue> Caller::rpc_async(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  const int rank = rank_of(to, name);
  Promise<c10::IValue> promise(host());
  start(rank, outcall(rank, name, args), promise.future().core(),
        [promise, name = std::string(name), caller = *this, rank](detail::Packet packet) {
          detail::fulfil<c10::IValue>(promise, std::move(packet), name, [&] { return caller.name_of(rank); });
        });
  return promise.future();
}

RRef<at::Tensor> Caller::remote(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const {
  const int rank = rank_of(to, name);
  return RRef<at::Tensor>(detail::remote_at(core_, rank, outcall(rank, name, args), options_));
}

detail::Outcall Caller::outcall(int to, std::string_view name, const std::vector<c10::IValue>& args) const {
  if (name.empty()) throw Error(detail::call_of(name, name_of(to)) + "a name is needed, such as \"aten::add\"");
  try {
    return {nullptr, std::string(name), detail::pack_values(args, limits())};
  } catch (const Error&) {
    detail::not_packed(name, name_of(to));
  }
}

std::shared_ptr<detail::FutureHost> Caller::host() const { return core_; }
int Caller::rank_of(const Peer& peer, std::string_view function) const { return core_->rank_of(peer, function).value; }
std::string Caller::name_of(int rank) const { return core_->members()[rank].name; }
const detail::ValueLimits& Caller::limits() const { return core_->agent().limits(); }

detail::Packet Caller::wait(int to, detail::Outcall call) const {
  return core_->agent().call(base::Rank(static_cast<uint16_t>(to)), std::move(call), options_);
}

void Caller::start(int to, detail::Outcall call, std::shared_ptr<detail::FutureCore> future,
                   std::function<void(detail::Packet)> done) const {
  core_->agent().start(base::Rank(static_cast<uint16_t>(to)), std::move(call), options_, std::move(future),
                       std::move(done));
}

}  // namespace farad
