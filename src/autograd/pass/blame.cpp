// How FAST finds out what it waits for when nothing moves: a call that is not used, which it names, or a gradient that
// another pass has brought meanwhile, which it claims.

#include <algorithm>

#include "autograd/pass/passes.h"

namespace farad::autograd {
namespace {

/// Whether its message had arrived when the pass began here.
bool knows(const Pass& pass, PairId pair) {
  const auto& topology = pass.wave.topology();
  const auto is_it = [&](const Crossing& recv) { return recv.pair == pair; };
  return std::any_of(topology.recvs.begin(), topology.recvs.end(), is_it) ||
         std::any_of(topology.unreached.begin(), topology.unreached.end(), is_it);
}

}  // namespace

void Passes::blame(Pass& pass, base::Rank peer, Effects& out) {
  if (pass.state != PassState::Running) return;
  auto which = message(pass, PassKind::Which), claim = message(pass, PassKind::Claim);
  const auto& sends = pass.wave.topology().sends;
  for (uint32_t send = 0; send < sends.size(); ++send) {
    if (sends[send].peer != peer || !pass.wave.is_waiting(send)) continue;
    const bool gradient = sends[send].gradient && !faults_.blame_gradients;
    (gradient ? claim : which).answers.push_back({sends[send].pair});
  }
  if (!claim.answers.empty() && peer != self_) out.messages.push_back({peer, std::move(claim)});
  if (which.answers.empty()) return;
  if (peer == self_) return reply_unknown(pass, self_, which.answers, out);
  out.messages.push_back({peer, std::move(which)});
}

/// A call whose message had not arrived when we began is not among our recvs.
void Passes::reply_unknown(Pass& pass, base::Rank from, const std::vector<Answer>& calls, Effects& out) {
  auto those = message(pass, PassKind::Those);
  for (const auto& call : calls) {
    if (!knows(pass, call.pair)) those.answers.push_back({call.pair});
  }
  if (those.answers.empty()) return;
  if (from == self_) return accuse(pass, those.answers.front().pair, out);
  out.messages.push_back({from, std::move(those)});
}

void Passes::on_claim(Pass& pass, base::Rank from, const std::vector<Answer>& gradients, Effects& out) {
  pass.heard_from(from);
  bool answered = false;
  for (const auto& gradient : gradients) {
    if (knows(pass, gradient.pair)) continue;  // It is answered like all others.
    if (std::erase(pass.late, gradient.pair) > 0) {
      answer_null(pass, gradient.pair, from, out);
      answered = true;
    } else if (std::find(pass.wanted.begin(), pass.wanted.end(), gradient.pair) == pass.wanted.end()) {
      pass.wanted.push_back(gradient.pair);
    }
  }
  if (answered) go_on(pass, out);  // Else nothing has moved, and to say so again would only lead to the same claim.
}

void Passes::accuse(Pass& pass, PairId unused, Effects& out) {
  abort(pass,
        {base::Code::Invalid, self_,
         "FAST needs every call to be used, and this one is not: " + surroundings_->describe(unused) +
             ". Use it, or SMART."},
        out);
}

}  // namespace farad::autograd
