#include "rpc/agent.h"

#include <c10/util/ScopeExit.h>
#include <farad/error.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "net/machine.h"
#include "wire/device.h"

namespace farad::rpc {
namespace {

using base::Code;
using base::Rank;
using base::Status;

int threads_for(int wanted) {
  return wanted > 0 ? wanted : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// Whichever thread gets the value may use its tensors in streams of its own.
void use_where_read(detail::FutureCore& future, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> on_devices;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(on_devices), wire::is_on_device);
  if (on_devices.empty()) return;
  future.set_reader([on_devices = std::move(on_devices)] { wire::use_here(on_devices); });
}

std::string name_of(Rank rank, const std::vector<std::string>& names) {
  return rank.value < names.size() ? names[rank.value] : "rank " + std::to_string(rank.value);
}

}  // namespace

Agent::Agent(net::FabricOptions fabric, Options options, AgentHost& host)
    : options_(options),
      host_(host),
      fabric_(net::Fabric::join(std::move(fabric), *this)),
      pending_(fabric_->self().birth),
      timer_parker_(fabric_->runtime().make_parker()),
      executor_(fabric_->runtime(), "farad-rpc", threads_for(options.threads)),
      in_place_(fabric_->runtime(), fabric_->driver(), executor_) {
  for (const auto& member : fabric_->members()) names_.push_back(member.name);
  ending_ = std::make_unique<Ending>(*fabric_, [this](Rank rank) { return name_of(rank); });
  timer_ = fabric_->runtime().start("farad-timer", [this] { expire_calls(); });
}

Agent::~Agent() { end("the worker was destroyed"); }

// --- Calls that we make ---

uint64_t Agent::send(Rank to, detail::Outcall call, base::TimePoint since, base::TimePoint deadline,
                     std::chrono::milliseconds timeout, Watch watch, std::function<void(Outcome&&)> done) {
  Callee callee{call.function, call.name};
  if (!call.arguments.references.empty()) {
    const auto fine = host_.references().may_lend(call.arguments.references);
    if (!fine.ok()) throw Error(text_of(to, callee) + ": " + fine.message());
  }
  CallHeader header;
  if (call.function) header.function = call.function->id;
  header.timeout_ms = static_cast<uint32_t>(std::min<int64_t>(timeout.count(), UINT32_MAX));
  header.one_way = call.one_way;
  header.makes = call.makes;
  header.object = call.object;
  header.name = call.name;
  std::shared_ptr<Interceptor::Made> made;
  if (auto* above = host_.above()) made = above->on_call(to, callee, call.arguments.tensors, header.note);
  if (!call.arguments.references.empty()) header.loans = host_.references().lend(to, call.arguments.references);
  begin_work();
  uint64_t id = 0;
  if (!call.one_way) {
    const auto watched = watch == Watch::ByTimer ? deadline : base::never;
    id = pending_.add({to, callee, watched, since, std::move(done), {}, call.keep, made});
  }
  try {
    auto message = encode_call(id, header, std::move(call.arguments));
    message.forgotten = call.one_way;
    wire::to_host(message, wire::Complete::InCurrentStreams).raise();
    const auto incarnation = fabric_->driver().driving_here() ? post(to, std::move(message))
                                                              : fabric_->send(to, std::move(message), deadline);
    if (made) made->went({to, incarnation});
    ending_->sent({to, incarnation});
    if (!header.loans.empty() || header.makes) {
      host_.references().sent({to, incarnation}, header.loans, header.makes);
    }
    if (call.one_way) {
      end_work();
    } else if (auto lost = pending_.sent(id, incarnation)) {
      complete(*lost, {{Code::PeerLost, text_of(to, callee) + ": lost it"}, {}, {}});
    }
  } catch (...) {
    if (made) made->never_went();
    if (!header.loans.empty()) host_.references().take_back({to, {}}, header.loans);
    // If somebody else has taken it, because we end, then that is how it ends.
    if (!call.one_way && !pending_.take(id)) return id;
    end_work();
    const auto why = base::status_of(std::current_exception());
    const auto late = why.code() == Code::Timeout ? ": not sent in " + base::to_text(timeout) : "";
    Status(why.code(), text_of(to, callee) + late + ": " + why.message()).raise();
  }
  return id;
}

base::Incarnation Agent::post(Rank to, wire::Message message) {
  auto sent = fabric_->post(to, std::move(message));
  sent.status.raise();
  return sent.incarnation;
}

detail::Packet Agent::call(Rank to, detail::Outcall call, const CallOptions& options) {
  const auto timeout = options.timeout.value_or(options_.timeout);
  const auto since = fabric_->runtime().now();
  const auto deadline = base::deadline_after(since, timeout);
  struct {
    std::shared_ptr<net::Waiter> waiter;
    Outcome outcome;
  } awaited{fabric_->driver().make_waiter(), {}};
  const auto& waiter = awaited.waiter;
  const Callee callee{call.function, call.name};
  net::Driver::Reservation reservation(fabric_->driver());
  // One pointer fits into a std::function without an allocation.
  const uint64_t id =
      send(to, std::move(call), since, deadline, timeout, Watch::ByCaller, [&awaited](Outcome&& result) {
        awaited.outcome = std::move(result);
        const auto held = awaited.waiter;  // Once it is complete, our frame may be gone.
        held->complete();
      });
  // Should the wait throw, nobody may write into this frame any more.
  auto withdraw = c10::make_scope_exit([&] {
    if (waiter->completed()) return;
    if (const auto mine = pending_.give_up(id)) return tell_given_up(*mine, id), end_work();
    while (!waiter->completed()) std::this_thread::yield();  // Somebody is completing it right now.
  });
  if (!fabric_->driver().wait(*waiter, deadline)) {
    if (const auto mine = pending_.give_up(id)) {
      withdraw.release();
      tell_given_up(*mine, id);
      end_work();
      throw Timeout(text_of(to, callee) + ": no reply in " + base::to_text(timeout));
    }
    fabric_->driver().wait(*waiter, base::never);  // Somebody is completing it right now.
  }
  if (auto error = error_of(awaited.outcome, to, callee)) std::rethrow_exception(error);
  wire::use_here(awaited.outcome.result.tensors);
  return std::move(awaited.outcome.result);
}

void Agent::start(Rank to, detail::Outcall call, const CallOptions& options, std::shared_ptr<detail::FutureCore> future,
                  std::function<void(detail::Packet)> done) {
  const auto timeout = options.timeout.value_or(options_.timeout);
  const auto since = fabric_->runtime().now();
  const auto deadline = base::deadline_after(since, timeout);
  if (call.one_way) {
    send(to, std::move(call), since, deadline, timeout, Watch::ByTimer, nullptr);
    return;
  }
  const Callee callee{call.function, call.name};
  const uint64_t id = send(to, std::move(call), since, deadline, timeout, Watch::ByTimer,
                           [this, to, callee, future, done = std::move(done)](Outcome&& outcome) {
                             if (auto error = error_of(outcome, to, callee)) {
                               future->fail(error);
                             } else {
                               use_where_read(*future, outcome.result.tensors);
                               done(std::move(outcome.result));
                             }
                           });
  future->set_cancel([life = host_.life(), this, id, to, callee]() -> std::string {
    const auto alive = life.lock();
    if (!alive) return {};
    if (const auto call = pending_.give_up(id)) {
      tell_given_up(*call, id);
      end_work();
    }
    return text_of(to, callee);
  });
  if (deadline < timer_next_.load()) timer_parker_->unpark();
}

void Agent::tell_given_up(const PendingCall& call, uint64_t id) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Cancel);
  message.tag = id;
  (void)fabric_->post(call.to, std::move(message)).status;
}

void Agent::complete(const PendingCall& call, Outcome&& outcome) {
  call.done(std::move(outcome));
  end_work();
}

void Agent::expire_calls() {
  while (!ending_->ended()) {
    timer_next_.store(base::never);  // Whoever adds a call from here on wakes us, unless it was in time to be seen.
    base::TimePoint next;
    for (auto& [id, call] : pending_.give_up_expired(fabric_->runtime().now(), next)) {
      tell_given_up(call, id);
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(call.deadline - call.since);
      complete(call,
               {{Code::Timeout, text_of(call.to, call.callee) + ": no reply in " + base::to_text(waited)}, {}, {}});
    }
    next = std::min(next, delayed_.run_due(fabric_->runtime().now()));
    timer_next_.store(next);
    timer_parker_->park(next);
  }
}

void Agent::run_after(base::Duration delay, std::function<void()> task) {
  begin_work();
  const auto due = fabric_->runtime().now() + delay;
  delayed_.add(due, [this, task = std::move(task)] {
    task();
    end_work();
  });
  if (due < timer_next_.load()) timer_parker_->unpark();
}

std::string Agent::name_of(Rank rank) const { return rpc::name_of(rank, names_); }

std::function<std::string(Rank)> Agent::naming() const {
  return [names = names_](Rank rank) { return rpc::name_of(rank, names); };
}

std::string Agent::text_of(Rank to, const Callee& callee) const {
  return "[rpc] call of \"" + callee.text() + "\" to " + name_of(to);
}

std::exception_ptr Agent::error_of(const Outcome& outcome, Rank to, const Callee& callee) {
  if (!outcome.status.ok()) return outcome.status.exception();
  if (!outcome.failure) return nullptr;
  const Failure& failure = *outcome.failure;
  if (failure.code != Code::RemoteError) {
    return Status(failure.code, failure.text + " (call of \"" + callee.text() + "\" to " + name_of(to) + ")")
        .exception();
  }
  std::vector<std::string> hops{name_of(fabric_->self().rank), name_of(to) + " \"" + callee.text() + "\""};
  hops.insert(hops.end(), failure.hops.begin(), failure.hops.end());
  return std::make_exception_ptr(RemoteError(std::move(hops), failure.type, failure.text, failure.stack));
}

void Agent::wait(detail::FutureCore& future, base::TimePoint deadline) {
  auto waiter = fabric_->driver().make_waiter();
  const auto wake = future.notify([waiter] { waiter->complete(); });
  if (!fabric_->driver().wait(*waiter, deadline)) future.forget(wake);  // It may be asked again and again.
}

// --- The end ---

void Agent::leave() {
  if (ending_->ended()) return;
  ending_->wait_to_leave();
  end("this worker left");
}

Status Agent::close() {
  if (ending_->ended()) return {};
  auto status = ending_->wait_to_close();
  end("this worker is closed");
  return status;
}

void Agent::describe(Debug& debug) const {
  const auto now = fabric_->runtime().now();
  const auto age = [&](base::TimePoint since) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  };
  pending_.each([&](const PendingCall& call) {
    debug.made.push_back({call.callee.text(), "to " + name_of(call.to), age(call.since)});
  });
  base::Lock lock(mutex_);
  for (const auto& [key, call] : running_) {
    debug.running.push_back({call->function(), "from " + name_of(key.first.rank), age(call->since)});
  }
  debug.unsettled += pending_.given_up();
}

void Agent::end(const std::string& why) {
  if (!ending_->end()) return;
  fabric_->close();
  timer_parker_->unpark();
  timer_.reset();
  for (auto& call : pending_.take_all()) {
    complete(call, {{Code::Closed, text_of(call.to, call.callee) + ": " + why}, {}, {}});
  }
  const auto let_go = pending_.let_go_all();
  if (auto* above = host_.above()) above->close();
  if (auto* collectives = host_.collectives()) collectives->close();
  fabric_->driver().residents().join();
  executor_.close();
}

}  // namespace farad::rpc
