#include "rpc/agent.h"

#include "wire/device.h"

/// What comes in, on the driving thread.
namespace farad::rpc {
namespace {

using base::Code;
using base::Status;

/// More functions than this share one estimate of what they cost.
constexpr size_t most_costs = 4096;

}  // namespace

void Agent::on_message(net::Peer from, wire::Message&& message) {
  ending_->on_alive(from.rank);
  switch (static_cast<Kind>(message.kind)) {
    case Kind::Call:
      return take_call(from, std::move(message));
    case Kind::Reply:
      return take_reply(from, std::move(message));
    case Kind::Cancel:
      return take_cancel(from, message.tag);
    case Kind::Closing:
      return ending_->on_message(from.rank, message);
    case Kind::Reference:
      return host_.references().on_message(from, message);
    case Kind::Above:
      if (auto* above = host_.above()) above->on_message(from, std::move(message));
      return;
    case Kind::Collective:
      if (auto* collectives = host_.collectives()) collectives->on_message(from, std::move(message));
      return;
  }
}

void Agent::take_call(net::Peer from, wire::Message&& message) {
  const uint64_t id = message.tag;
  auto call = std::make_shared<Incall>(*this, from, std::move(message), fabric_->runtime().now());
  ending_->received(from);
  call->arrived();
  {
    base::Lock lock(mutex_);
    running_.emplace(std::pair(from, id == 0 ? ++one_way_ : id), call);
    call->key = id == 0 ? one_way_ : id;
    if (id != 0 && std::erase(early_cancels_, std::pair(from, id)) > 0) (void)call->cancel();
  }
  if (in_place_.run(cost_of(call->header()), [call] { call->run(); }) || ending_->ended()) return;
  call->refuse({Code::Invalid, "[rpc] call of \"" + call->function() +
                                   "\": all threads wait, and the system has none to spare (ulimit -u; pids of a "
                                   "container)"});
}

net::Cost& Agent::cost_of(const CallHeader& call) {
  const std::pair function(call.function, call.name);
  if (const auto known = costs_.find(function); known != costs_.end()) return known->second;
  return costs_.size() < most_costs ? costs_[function] : cost_of_others_;
}

void Agent::finished(const std::shared_ptr<Incall>& call) {
  {
    base::Lock lock(mutex_);
    running_.erase({call->from(), call->key});
  }
  end_work();
}

void Agent::take_reply(net::Peer from, wire::Message&& message) {
  auto call = pending_.take(message.tag);
  Outcome outcome;
  ReplyHeader header;
  size_t result_at = 0;
  outcome.status = decode_reply(message, header, result_at);
  // Even if nobody waits any more: the lender does, for its references.
  if (!header.loans.empty()) {
    outcome.result.references = host_.references().receive(from, header.loans, call ? call->callee.text() : "?");
  }
  if (!call) return take_late_reply(from, message.tag, header);
  if (!outcome.status.ok()) {
    const auto& why = outcome.status.message();
    outcome.status = {Code::Protocol, text_of(call->to, call->callee) + ": " + why};
  } else if (header.failed) {
    outcome.status = decode_failure(message, result_at, outcome.failure.emplace());
  } else {
    const auto placed = wire::to_devices(message);
    // Recorded even if not: the callee has recorded that it sent it.
    if (call->made) outcome.status = call->made->on_result(from, header.note, message.tensors);
    if (outcome.status.ok() && !placed.ok()) {
      outcome.status = {placed.code(), "[rpc] result of \"" + call->callee.text() + "\" from " + name_of(call->to) +
                                           ": " + placed.message()};
    }
    message.body.erase(message.body.begin(), message.body.begin() + static_cast<ptrdiff_t>(result_at));
    outcome.result.body = std::move(message.body);
    outcome.result.tensors = std::move(message.tensors);
    outcome.result.limits = options_.limits;
  }
  complete(*call, std::move(outcome));
}

/// The caller gave up first. A late reply is news to nobody, but for what was kept for it and for the layer above.
void Agent::take_late_reply(net::Peer from, uint64_t id, const ReplyHeader& header) {
  if (auto* above = host_.above(); above && !header.note.empty()) above->on_late_result(from, header.note);
  pending_.let_go(id);
}

void Agent::take_cancel(net::Peer from, uint64_t id) {
  base::Lock lock(mutex_);
  const auto found = running_.find({from, id});
  if (found != running_.end()) {
    auto returned = found->second->cancel();
    lock.unlock();
    return cancel_returned(std::move(returned));
  }
  // It has overtaken its call, or comes too late; which of the two cannot be told, so only the latest are kept.
  constexpr size_t most_kept = 64;
  early_cancels_.emplace_back(from, id);
  if (early_cancels_.size() > most_kept) early_cancels_.pop_front();
}

/// What the function of a call that was given up has returned.
void Agent::cancel_returned(std::shared_ptr<detail::FutureCore> future) {
  if (!future) return;
  executor_.post([this, future = std::move(future)] {
    host_.run_as_worker([&] {
      try {
        future->give_up();  // The function may have given the same one to others.
      } catch (...) {       // Of a hook; the future is cancelled all the same, and nobody else wants to know.
      }
    });
  });
}

void Agent::on_lost(net::Peer peer, const Status& why) {
  for (auto& call : pending_.take_all_of(peer)) {
    complete(call, {{Code::PeerLost, text_of(peer.rank, call.callee) + ": " + why.message()}, {}, {}});
  }
  const auto let_go = pending_.let_go_of(peer);  // Their ends send, and must not to who was lost.
  std::vector<std::shared_ptr<detail::FutureCore>> returned;
  {
    base::Lock lock(mutex_);
    for (auto& [key, call] : running_) {
      if (key.first == peer) returned.push_back(call->cancel());
    }
    std::erase_if(early_cancels_, [&](const auto& cancel) { return cancel.first == peer; });
  }
  for (auto& future : returned) cancel_returned(std::move(future));
  host_.references().on_lost(peer);
  if (auto* above = host_.above()) above->on_lost(peer, why);
  if (auto* collectives = host_.collectives()) collectives->on_lost(peer, why);
  host_.on_lost(peer);
  ending_->on_lost(peer);
}

void Agent::on_unsent(net::Peer to, const wire::Message& message, const Status& why) {
  const auto kind = static_cast<Kind>(message.kind);
  const uint64_t tag = message.tag;
  if (kind == Kind::Call) {
    CallHeader header;
    size_t arguments_at = 0;
    if (decode_call(message, header, arguments_at).ok()) host_.references().take_back(to, header.loans);
    ending_->unsent(to);
    if (auto call = pending_.take(tag)) {
      if (call->made) call->made->never_went();
      complete(*call, {{Code::Invalid, text_of(call->to, call->callee) + ": " + why.message()}, {}, {}});
    }
    pending_.let_go(tag);  // If it was given up meanwhile: there is nobody to tell that it has ended.
  } else if (kind == Kind::Reply) {
    ReplyHeader header;
    size_t result_at = 0;
    if (decode_reply(message, header, result_at).ok()) host_.references().take_back(to, header.loans);
    const Failure failure{Code::Invalid, {}, "[rpc] its result: " + why.message(), {}};
    (void)fabric_->post(to.rank, encode_failure(tag, failure)).status;
    if (auto* above = host_.above()) above->on_unsent_reply(to, tag);
  } else if (kind == Kind::Above) {
    if (auto* above = host_.above()) above->on_unsent(to, message, why);
  }
}

}  // namespace farad::rpc
