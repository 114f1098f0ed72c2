// How answers come in, fire what waited for them, and go out.

#include <algorithm>

#include "autograd/pass/passes.h"

namespace farad::autograd {
namespace {

constexpr uint32_t not_ours = UINT32_MAX;

/// The send of that pair, by its place; not_ours if the snapshot has none.
uint32_t find_send(const Pass& pass, PairId pair) {
  const auto& sends = pass.wave.topology().sends;
  const auto at = std::lower_bound(pass.send_order.begin(), pass.send_order.end(), pair,
                                   [&](uint32_t send, PairId wanted) { return sends[send].pair < wanted; });
  return at != pass.send_order.end() && sends[*at].pair == pair ? *at : not_ours;
}

}  // namespace

void Passes::on_grads(Pass& pass, base::Rank from, const PassMessage& grads, Effects& out) {
  const auto index = channel_to(pass, from);
  auto* const channel = index != Pass::to_lost ? &pass.channels[index] : nullptr;

  // One that is done has given up the right to decide (endings.cpp), and asks the root; which would not commit anyway,
  // because more was sent than taken.
  const auto refuse = [&](PairId pair, const char* why) {
    abort_or_ask(
        pass, {base::Code::Protocol, from, std::string("it sent ") + why + ": " + surroundings_->describe(pair)}, out);
  };
  uint32_t first_state = 0, first_tensor = 0;
  for (const auto& answer : grads.answers) {
    const auto states = std::span(grads.states).subspan(first_state, answer.tensors);
    const bool live = std::any_of(states.begin(), states.end(), [](auto s) { return s != TensorState::Null; });
    const uint32_t send = find_send(pass, answer.pair);
    if (send == not_ours || pass.nulled[send]) {
      // Made after the pass began, or given up: nobody that a root leads to can have used it.
      if (live) return refuse(answer.pair, "a gradient for a call that is not part of the pass");
    } else if (pass.wave.topology().sends[send].peer != from) {
      return refuse(answer.pair, "an answer to another's call");
    } else if (!pass.wave.is_waiting(send)) {
      return refuse(answer.pair, "a second answer to one call");
    } else if (answer.tensors != 0 && answer.tensors != pass.wave.topology().sends[send].tensors) {
      return refuse(answer.pair, "an answer with a wrong number of tensors");
    } else {
      if (live) {
        out.deliveries.push_back({pass.id, pass.wave.topology().sends[send].node,
                                  static_cast<uint32_t>(out.states.size()), answer.tensors, first_tensor, grads.cargo});
        out.states.insert(out.states.end(), states.begin(), states.end());
        if (channel && !pass.fast) ++channel->received;
      }
      answer_send(pass, send, states);
    }
    first_state += answer.tensors;
    first_tensor += static_cast<uint32_t>(std::count(states.begin(), states.end(), TensorState::Tensor));
  }
  // Not one that was refused: until the root has heard so, more was sent than taken.
  if (!channel || !pass.fast) return;
  ++channel->received;
  pass.unreported = true;
}

void Passes::answer_send(Pass& pass, uint32_t send, std::span<const TensorState> states) {
  if (const auto channel = pass.send_channel[send]; channel != Pass::to_lost) --pass.channels[channel].unanswered;
  const bool live = std::any_of(states.begin(), states.end(), [](auto s) { return s != TensorState::Null; });
  if (faults_.null_is_live || (faults_.ignore_live_bits && live)) {
    const std::vector<TensorState> all(pass.wave.topology().sends[send].tensors, TensorState::Undefined);
    return pass.wave.answer(send, all);
  }
  pass.wave.answer(send, states);
}

void Passes::answer_own(Pass& pass, PairId pair, NodeIndex recv, std::span<const TensorState> states, Effects& out) {
  const uint32_t send = find_send(pass, pair);
  if (send == not_ours || !pass.wave.is_waiting(send)) {
    if (states.empty()) return;
    return abort(
        pass,
        {base::Code::Protocol, self_, "a gradient for a call to itself that failed: " + surroundings_->describe(pair)},
        out);
  }
  if (!states.empty()) out.hand_overs.push_back({pass.id, recv, pass.wave.topology().sends[send].node});
  answer_send(pass, send, states);
}

/// Of what no node of the pass stands for.
void Passes::answer_null(Pass& pass, PairId pair, base::Rank peer, Effects& out) {
  if (peer == self_) return answer_own(pass, pair, no_node, {}, out);
  const auto channel = channel_to(pass, peer);
  if (channel == Pass::to_lost) return;
  queue_answer(pass, channel, {pair}, {});
}

void Passes::answer_recv(Pass& pass, uint32_t recv, Effects& out) {
  const auto& crossing = pass.wave.topology().recvs[recv];
  const auto live = pass.wave.is_live_recv(recv) ? pass.wave.tensors_of_recv(recv) : std::span<const uint8_t>();
  const auto channel = pass.recv_channel[recv];
  if (channel == Pass::to_lost) {
    // Every path of the pass through a worker enters it by a gradient that goes there. If none does, leaving that
    // worker out changed nothing; if one does, the result cannot be had.
    if (!live.empty() && !faults_.lose_live_grads) {
      abort(pass,
            lost(crossing.peer,
                 "before the pass, which has a gradient for it: " + surroundings_->describe(crossing.pair)),
            out);
    }
    return;
  }
  if (crossing.peer != self_) return queue_answer(pass, channel, {crossing.pair, crossing.node}, live);
  std::vector<TensorState> states(live.size());
  for (size_t i = 0; i < live.size(); ++i) states[i] = live[i] ? TensorState::Tensor : TensorState::Null;
  answer_own(pass, crossing.pair, crossing.node, states, out);
}

void Passes::queue_answer(Pass& pass, uint32_t index, Answer answer, std::span<const uint8_t> live) {
  auto& channel = pass.channels[index];
  answer.tensors = static_cast<uint32_t>(live.size());
  if (!pass.fast && !live.empty()) ++channel.sent;
  channel.answers.push_back(answer);
  for (const auto one : live) channel.states.push_back(one ? TensorState::Tensor : TensorState::Null);
  if (std::exchange(channel.dirty, true)) return;
  pass.dirty.push_back(index);
}

void Passes::flush(Pass& pass, Effects& out) {
  for (const auto index : pass.dirty) {
    auto& channel = pass.channels[index];
    channel.dirty = false;
    auto grads = message(pass, PassKind::Grads);
    if (pass.fast && !std::exchange(channel.opened, true)) {
      open(pass, grads);
    }
    grads.answers = std::exchange(channel.answers, {});
    grads.states = std::exchange(channel.states, {});
    if (pass.fast) {
      ++channel.sent;
      pass.unreported = true;
    }
    if (faults_.answer_twice) out.messages.push_back({channel.peer, grads});
    out.messages.push_back({channel.peer, std::move(grads)});
  }
  pass.dirty.clear();
}

void Passes::settle(Pass& pass, Effects& out) {
  if (pass.state != PassState::Running && pass.state != PassState::Done) return;
  auto& fired = pass.wave.fired();
  for (size_t i = 0; i < fired.size(); ++i) {  // A call to ourselves may fire more.
    answer_recv(pass, fired[i], out);
    if (pass.state == PassState::Ended) return;
  }
  fired.clear();
  // Recvs run before all else, so what is ready for one peer goes in one message, and no node's work lies in between.
  if (!pass.dirty.empty() && !pass.wave.recv_is_next()) flush(pass, out);
  if (pass.state != PassState::Running) {
    // FAST: after all was done a null went out, or one came that nobody here had waited for.
    if (pass.unreported) report(pass, true, out);
    return;
  }
  if (pass.wave.left() == 0 || (faults_.done_early && pass.wave.left() == 1)) {
    vote(pass, out);
  } else if (pass.fast && !pass.wave.has_next() && pass.wave.running() == 0) {
    report(pass, false, out);
  }
}

void Passes::give_up_send(Pass& pass, PairId pair) {
  const uint32_t send = find_send(pass, pair);
  if (send == not_ours || !pass.wave.is_waiting(send)) return;
  pass.nulled[send] = 1;
  answer_send(pass, send, {});
}

void Passes::late_recv(PairId pair, base::Rank peer, bool gradient, Effects& out,
                       const std::function<bool(PassId)>& concerned) {
  if (faults_.ignore_late_recvs) return;
  for (auto& pass : passes_) {
    if (pass.state == PassState::Early || pass.state == PassState::Ended) continue;
    // In FAST a call that came too late is one that is not used: its sender waits, and the root finds out.
    if (pass.fast && (!gradient || faults_.ignore_late_gradients)) continue;
    if (concerned && !concerned(pass.id)) continue;
    if (pass.fast && peer != self_) {
      // Its sender may take no part, and is not to be drawn in. If it does, and waits, it says so.
      if (std::erase(pass.wanted, pair) == 0) {
        pass.late.push_back(pair);
        continue;
      }
      answer_null(pass, pair, peer, out);
      go_on(pass, out);
      continue;
    }
    pass.met_later.push_back(peer);
    if (peer != self_) {
      auto null = message(pass, PassKind::Grads);
      null.answers.push_back({pair});
      out.messages.push_back({peer, std::move(null)});
    } else if (pass.state == PassState::Scanning) {
      pass.early_nulls.push_back(pair);
    } else {
      answer_own(pass, pair, no_node, {}, out);
      go_on(pass, out);
    }
  }
  purge();
}

void Passes::null_send(PairId pair, Effects& out) {
  for (auto& pass : passes_) {
    if (pass.state == PassState::Scanning) pass.early_nulls.push_back(pair);
    if (pass.state != PassState::Running) continue;
    give_up_send(pass, pair);
    go_on(pass, out);
  }
  purge();
}

}  // namespace farad::autograd
