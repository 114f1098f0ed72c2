// How a pass ends: the count at the root, verdicts, and what becomes of it when workers are lost.
//
// A worker that is not done may abort: the root cannot have committed without it. One that is done has given that
// right away, and asks the root instead; if the root is lost, it asks everybody.

#include <algorithm>
#include <set>

#include "autograd/pass/passes.h"

namespace farad::autograd {
namespace {

std::string worker(base::Rank rank) { return "worker " + std::to_string(rank.value); }

}  // namespace

void Passes::vote(Pass& pass, Effects& out) {
  pass.state = PassState::Done;
  if (pass.fast) return report(pass, true, out);
  auto peers = pass.peers;
  if (faults_.done_names_later_peers) peers.insert(peers.end(), pass.met_later.begin(), pass.met_later.end());
  auto done = message(pass, PassKind::Done);
  done.peers = std::move(peers);
  done.left_out = pass.left_out;
  for (const auto& channel : pass.channels) {
    if (channel.sent + channel.received > 0) done.channels.push_back({channel.peer, channel.sent, channel.received});
  }
  if (!is_root(pass)) {
    out.messages.push_back({pass.id.root, std::move(done)});
    return;
  }
  if (faults_.commit_alone) done.peers.clear();
  pass.ballot.done(self_, done);
  decide(pass, out);
}

void Passes::report(Pass& pass, bool complete, Effects& out) {
  auto report = message(pass, PassKind::Report);
  report.number = ++pass.reports;
  report.complete = complete;
  report.left_out = pass.left_out;
  for (const auto& channel : pass.channels) {
    if (channel.sent + channel.received + channel.unanswered == 0) continue;
    report.channels.push_back({channel.peer, channel.sent, channel.received, channel.unanswered});
  }
  pass.unreported = false;
  if (!is_root(pass)) {
    out.messages.push_back({pass.id.root, std::move(report)});
    return;
  }
  pass.blamed = false;
  pass.ballot.report(self_, report);
  decide(pass, out);
}

void Passes::decide(Pass& pass, Effects& out) {
  if (!is_root(pass) || pass.blamed || !pass.ballot.is_over()) return;
  if (const auto disputed = pass.ballot.disputed(); disputed && !faults_.ignore_disputes) {
    // It did its part and was lost before another began, which took it for one that has no part.
    return abort(pass, lost(*disputed, "to some workers before the pass reached them"), out);
  }
  if (const auto unbalanced = pass.ballot.unbalanced();
      unbalanced && !faults_.ignore_lost_gradients && !faults_.ignore_disputes) {
    // They lost each other before, and have met again; but one of them has begun without having heard of that.
    const auto [from, to] = *unbalanced;
    return abort(pass, lost(from, "for a while to " + worker(to) + ", for which the pass has a gradient"), out);
  }
  if (pass.ballot.is_complete()) {
    if (pass.within.empty() || faults_.commit_inner) return commit(pass, out);
    if (!std::exchange(pass.held, true)) out.held.push_back(pass.id);
    return;
  }
  // Whoever is waited for and takes no part now does: it may be the one that has not used a call, which it will say.
  if (const auto absent = pass.ballot.absent(); !absent.empty()) {
    for (const auto peer : absent) {
      pass.ballot.name(peer);
      out.messages.push_back({peer, start(pass)});
    }
    return;
  }
  // Somebody waits for an answer to what its receiver did not know of when it began. If that is a call, it is named. If
  // it is a gradient of another pass, it is claimed; then something moves, and whoever moved reports again.
  pass.blamed = true;
  for (const auto& [at, peer] : pass.ballot.waits()) {
    if (at != self_) {
      auto order = message(pass, PassKind::Blame);
      order.blamed = peer;
      out.messages.push_back({at, std::move(order)});
    } else if (pass.state != PassState::Ended) {
      blame(pass, peer, out);
    }
  }
}

void Passes::commit(Pass& pass, Effects& out) {
  for (const auto member : pass.ballot.workers()) {
    if (member != self_) out.messages.push_back({member, message(pass, PassKind::Commit)});
  }
  end(pass, true, {}, out);
}

void Passes::abort(Pass& pass, const PassFailure& failure, Effects& out, const base::Rank* not_to) {
  if (pass.held) {
    // The node that began it has gone on, so that is not ours to decide any more: the pass around it may be committed.
    if (Pass* const outer = find(pass.within.front())) return abort_or_ask(*outer, failure, out, not_to);
  }
  // The root may not know yet who takes part, so it goes along the edges that START went along; that it gets to the
  // root as well spares it the way round.
  std::set<base::Rank> to(pass.peers.begin(), pass.peers.end());
  to.insert(pass.others.begin(), pass.others.end());
  to.insert(pass.id.root);
  for (const auto member : pass.ballot.workers()) to.insert(member);
  to.erase(self_);
  if (not_to) to.erase(*not_to);  // It has told us, or is lost to us. What is lost to others may still be there.
  if (pass.state == PassState::Early || (faults_.keep_abort && not_to)) to.clear();
  for (const auto neighbour : to) {
    auto abort = message(pass, PassKind::Abort);
    abort.failure = failure;
    out.messages.push_back({neighbour, std::move(abort)});
  }
  end(pass, false, failure, out);
}

void Passes::abort_or_ask(Pass& pass, const PassFailure& failure, Effects& out, const base::Rank* not_to) {
  if (pass.state < PassState::Done || is_root(pass)) {
    return abort(pass, failure, out, not_to);
  }
  if (pass.state != PassState::Done) return;  // An orphan has nobody to ask.
  auto fail = message(pass, PassKind::Fail);
  fail.failure = failure;
  out.messages.push_back({pass.id.root, std::move(fail)});
}

void Passes::on_lost(base::Rank worker, Effects& out) {
  for (auto& pass : passes_) lost_during(pass, worker, out);
  purge();
}

void Passes::lost_during(Pass& pass, base::Rank lost_one, Effects& out) {
  const bool is_its_root = pass.id.root == lost_one;
  const bool takes_part = is_its_root || pass.is_neighbour(lost_one) || pass.ballot.has(lost_one);
  switch (pass.state) {
    case PassState::Scanning:
      if (!takes_part) {
        pass.early_losses.push_back(lost_one);  // The snapshot may say otherwise.
        break;
      }
      [[fallthrough]];
    case PassState::Running:
      if (takes_part) abort(pass, lost(lost_one, "during the pass"), out, &lost_one);
      break;
    case PassState::Done:
      if (is_its_root && !faults_.orphans_drop) {
        ask_all(pass, out);
      } else if (takes_part && (faults_.decide_when_done || is_its_root)) {
        abort(pass, lost(lost_one, "during the pass"), out, &lost_one);
      } else if (takes_part) {
        abort_or_ask(pass, lost(lost_one, "during the pass"), out, &lost_one);
      }
      break;
    case PassState::Orphan:
      heard(pass, lost_one, out);
      break;
    case PassState::Early:
    case PassState::Ended:
      break;
  }
}

void Passes::ask_all(Pass& pass, Effects& out) {
  pass.state = PassState::Orphan;
  pass.unheard = surroundings_->members();
  std::erase(pass.unheard, self_);
  for (const auto member : pass.unheard) {  // the root too: perhaps it was only the connection
    auto ask = this->ask(pass);
    ask.orphaned = true;
    out.messages.push_back({member, std::move(ask)});
  }
  for (const auto& asker : std::exchange(pass.askers, {})) {
    out.messages.push_back({asker.worker, over(asker.pass, Verdict::Undecided, {})});
  }
  if (pass.unheard.empty()) heard(pass, self_, out);
}

/// That member has not heard the root commit, and will not, or is lost as well.
void Passes::heard(Pass& pass, base::Rank member, Effects& out) {
  std::erase(pass.unheard, member);
  if (pass.unheard.empty()) end(pass, false, lost(pass.id.root, "before it decided"), out);
}

void Passes::on_ask(base::Rank from, const PassMessage& ask, Effects& out) {
  if (answer_ask(ask.pass, from, ask, out)) return;
  // What we know of a pass around it holds for it as well.
  for (const auto& outer : ask.within) {
    if (answer_ask(outer, from, ask, out)) return;
  }
  out.messages.push_back({from, over(ask.pass, Verdict::Undecided, {}, ask.number)});
}

/// By what we know of `id`. False if that is nothing.
bool Passes::answer_ask(PassId id, base::Rank from, const PassMessage& ask, Effects& out) {
  const auto answer = [&](Verdict verdict, const PassFailure& failure = {}) {
    out.messages.push_back({from, over(ask.pass, verdict, failure, ask.number)});
    return true;
  };
  if (const auto tombstone = over_.find(id); tombstone != over_.end()) {
    return answer(tombstone->second.committed ? Verdict::Committed : Verdict::Dropped, tombstone->second.failure);
  }
  Pass* const pass = find(id);
  if (!pass || pass->held) return false;
  if (!ask.orphaned || pass->state == PassState::Early || pass->state == PassState::Orphan) {
    return answer(Verdict::Undecided);
  }
  if (pass->state == PassState::Done && !is_root(*pass)) {
    // The root may have told us, and it is on its way. Either it comes, or we shall hear that the root is lost. Or the
    // root waits for the one that asks, which it has never had to do with, so that it hears of no loss: we tell it.
    pass->askers.push_back({from, ask.pass});
    abort_or_ask(*pass, lost(from, "to its root during the pass"), out);
    return true;
  }
  const auto failure =
      is_root(*pass) ? lost(from, "during the pass, and has come back") : lost(pass->id.root, "for " + worker(from));
  abort(*pass, failure, out);
  return answer(Verdict::Dropped, failure);
}

void Passes::on_over(Pass& pass, base::Rank from, const PassMessage& answer, Effects& out) {
  switch (answer.verdict) {
    case Verdict::Committed:
      if (pass.state >= PassState::Done) end(pass, true, {}, out);
      break;
    case Verdict::Dropped:
      // Only the root decides for those who are done, unless they have lost it. A released context may say more than
      // it knows. But the root, done itself, would wait for ever for whoever says that.
      if (pass.state == PassState::Done && !is_root(pass) && from != pass.id.root) break;
      abort(pass, answer.failure, out, &from);
      break;
    case Verdict::Undecided:
      if (pass.state == PassState::Orphan) {
        heard(pass, from, out);
      } else {
        decided(pass.id, &answer.number, out);
      }
      break;
  }
}

void Passes::read(uint64_t reader, Effects& out) {
  Reader entry{reader, {}};
  for (const auto& pass : passes_) {
    if ((pass.state != PassState::Done || is_root(pass)) && pass.state != PassState::Orphan) continue;
    entry.undecided.push_back(pass.id);
    if (pass.state == PassState::Orphan) continue;
    // What becomes of one within others is known first where the outermost is decided.
    const auto decider = pass.within.empty() ? pass.id.root : pass.within.back().root;
    if (decider == self_) {
      entry.undecided.pop_back();  // and it is not: inner ones would have ended with it
      continue;
    }
    auto ask = this->ask(pass);
    ask.number = reader;
    out.messages.push_back({decider, std::move(ask)});
  }
  if (entry.undecided.empty()) {
    out.readers.push_back(reader);
  } else {
    readers_.push_back(std::move(entry));
  }
}

/// For one reader, or for all of them.
void Passes::decided(PassId pass, const uint64_t* only, Effects& out) {
  for (auto& reader : readers_) {
    if (only && reader.number != *only) continue;
    std::erase(reader.undecided, pass);
    if (reader.undecided.empty()) out.readers.push_back(reader.number);
  }
  std::erase_if(readers_, [](const Reader& reader) { return reader.undecided.empty(); });
}

void Passes::end(Pass& pass, bool committed, const PassFailure& failure, Effects& out) {
  if (pass.state != PassState::Early) out.endings.push_back({pass.id, committed, failure});
  for (const auto& asker : pass.askers) {
    out.messages.push_back(
        {asker.worker, over(asker.pass, committed ? Verdict::Committed : Verdict::Dropped, failure)});
  }
  pass.state = PassState::Ended;
  if (!faults_.forget_passes) over_[pass.id] = {committed, failure};
  decided(pass.id, nullptr, out);
  end_inner(pass.id, committed, failure, out);
  if (committed) commit_outer(pass.within, out);
}

/// A pass within them was committed, so they were, whether or not we have heard.
void Passes::commit_outer(const std::vector<PassId>& within, Effects& out) {
  for (const auto& id : within) {
    if (over_.contains(id)) continue;
    if (Pass* const outer = find(id)) {
      end(*outer, true, {}, out);
    } else {
      over_[id] = {true, {}};
    }
  }
}

/// Those within a pass that has ended end likewise. Where it was committed they were complete, and so done here.
void Passes::end_inner(PassId outer, bool committed, const PassFailure& failure, Effects& out) {
  for (auto& pass : passes_) {
    if (pass.state == PassState::Ended || pass.within.empty()) continue;
    if (std::find(pass.within.begin(), pass.within.end(), outer) == pass.within.end()) continue;
    if (!committed) {
      pass.held = false;
      abort(pass, failure, out);
    } else if (is_root(pass)) {
      commit(pass, out);
    } else {
      end(pass, true, {}, out);
    }
  }
}

PassMessage Passes::over(PassId pass, Verdict verdict, const PassFailure& failure, uint64_t number) const {
  PassMessage over;
  over.kind = PassKind::Over;
  over.context = context_;
  over.pass = pass;
  over.verdict = verdict;
  over.failure = failure;
  over.number = number;
  return over;
}

PassFailure Passes::lost(base::Rank lost_one, const std::string& how) {
  return {base::Code::PeerLost, lost_one, "it was lost " + how};
}

}  // namespace farad::autograd
