#include "autograd/pass/passes.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace farad::autograd {
namespace {

bool contains(const std::vector<base::Rank>& ranks, base::Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

Passes::Passes(ContextId context, base::Rank self, const Surroundings& surroundings, Faults faults, uint64_t life)
    : context_(context), self_(self), surroundings_(&surroundings), faults_(faults), life_(life) {}

PassId Passes::begin(bool fast, std::string options, Effects& out) {
  return begin_root(fast, std::move(options), {}, out);
}

PassId Passes::begin_within(PassId outer, std::string options, Effects& out) {
  const Pass* const around = find(outer);
  if (!around) return {};
  std::vector<PassId> within{outer};
  within.insert(within.end(), around->within.begin(), around->within.end());
  return begin_root(around->fast, std::move(options), std::move(within), out);
}

PassId Passes::begin_root(bool fast, std::string options, std::vector<PassId> within, Effects& out) {
  auto& pass = passes_.emplace_back();
  pass.id = {self_, ++counter_, life_};
  pass.ballot = Ballot(fast, faults_.skip_balance);
  pass.ballot.name(self_);
  PassMessage own = message(pass, PassKind::Start);
  own.fast = fast;
  own.options = std::move(options);
  own.within = std::move(within);
  begin_here(pass, self_, own, out);
  return pass.id;
}

/// Takes what the message says of how it was called.
void Passes::begin_here(Pass& pass, base::Rank by, PassMessage& message, Effects& out) {
  pass.state = PassState::Scanning;
  pass.begun_by = by;
  pass.fast = message.fast;
  pass.options = std::move(message.options);
  pass.within = std::move(message.within);
  out.scans.push_back({pass.id, pass.fast, pass.options});
}

void Passes::scanned(PassId id, const Snapshot& snapshot, Effects& out) {
  Pass* const found = find(id);
  if (!found || found->state != PassState::Scanning) return;
  Pass& pass = *found;
  pass.wave = Wave(snapshot.topology);
  make_channels(pass, snapshot);
  pass.state = PassState::Running;
  for (const auto worker : std::exchange(pass.early_losses, {})) {
    if (pass.state == PassState::Running && pass.is_neighbour(worker)) lost_during(pass, worker, out);
  }
  if (pass.state != PassState::Running) return purge();
  if (!pass.fast) {
    // Ahead of all else, so that the others count dependencies while we still compute.
    for (const auto peer : pass.peers) {
      if (peer != pass.begun_by) out.messages.push_back({peer, start(pass)});
    }
  }
  pass.wave.start(snapshot.roots);
  answer_unreached(pass, out);
  for (const auto pair : std::exchange(pass.early_nulls, {})) {
    if (pass.state == PassState::Running) give_up_send(pass, pair);
  }
  for (auto& [from, grads] : std::exchange(pass.early, {})) {
    if (pass.state == PassState::Running) on_grads(pass, from, grads, out);
  }
  go_on(pass, out);
  purge();
}

void Passes::go_on(Pass& pass, Effects& out) {
  settle(pass, out);
  if (pass.state == PassState::Running && pass.wave.has_next()) out.runnable.push_back(pass.id);
}

void Passes::make_channels(Pass& pass, const Snapshot& snapshot) {
  const auto& topology = *snapshot.topology;
  auto& peers = pass.peers;
  peers = snapshot.peers;
  for (const auto* crossings : {&topology.sends, &topology.recvs, &topology.unreached}) {
    for (const auto& crossing : *crossings) {
      if (peers.empty() || peers.back() != crossing.peer) peers.push_back(crossing.peer);
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::erase(peers, self_);
  const auto is_lost = [&](base::Rank peer) { return contains(snapshot.lost, peer); };
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(pass.left_out), is_lost);
  std::erase_if(peers, is_lost);

  pass.channels.resize(peers.size() + 1);
  for (size_t i = 0; i < peers.size(); ++i) pass.channels[i].peer = peers[i];
  pass.channels.back().peer = self_;
  pass.send_channel.reserve(topology.sends.size());
  for (const auto& send : topology.sends) {
    const auto channel = channel_to(pass, send.peer);
    pass.send_channel.push_back(channel);
    if (channel != Pass::to_lost) ++pass.channels[channel].unanswered;
  }
  pass.recv_channel.reserve(topology.recvs.size());
  for (const auto& recv : topology.recvs) pass.recv_channel.push_back(channel_to(pass, recv.peer));
  pass.nulled.resize(topology.sends.size());
  pass.send_order.resize(topology.sends.size());
  std::iota(pass.send_order.begin(), pass.send_order.end(), 0);
  const auto by_pair = [&](uint32_t a, uint32_t b) { return topology.sends[a].pair < topology.sends[b].pair; };
  if (!std::is_sorted(pass.send_order.begin(), pass.send_order.end(), by_pair)) {
    std::sort(pass.send_order.begin(), pass.send_order.end(), by_pair);
  }
}

/// What counts what goes to that worker and comes from it; to_lost if it was left out. FAST has to count all of it,
/// also with one that was met later.
uint32_t Passes::channel_to(Pass& pass, base::Rank peer) const {
  const auto& peers = pass.peers;
  if (peer == self_) return static_cast<uint32_t>(peers.size());
  const auto at = std::lower_bound(peers.begin(), peers.end(), peer);
  if (at != peers.end() && *at == peer) return static_cast<uint32_t>(at - peers.begin());
  if (!pass.fast || contains(pass.left_out, peer)) return Pass::to_lost;
  auto channel = static_cast<uint32_t>(peers.size()) + 1;
  while (channel < pass.channels.size() && pass.channels[channel].peer != peer) ++channel;
  if (channel == pass.channels.size()) pass.channels.emplace_back().peer = peer;
  return channel;
}

void Passes::answer_unreached(Pass& pass, Effects& out) {
  if (pass.state != PassState::Running) return;
  const auto& topology = pass.wave.topology();
  for (uint32_t send = 0; send < topology.sends.size(); ++send) {
    // A worker that is gone answers nothing. If no gradient has to go there, it would have answered null: see
    // answer_recv() for the other case.
    if (pass.send_channel[send] == Pass::to_lost && !faults_.wait_for_lost) answer_send(pass, send, {});
  }
  for (const auto& recv : topology.unreached) {
    if (channel_to(pass, recv.peer) == Pass::to_lost) continue;
    if (pass.fast && !recv.gradient) {
      // Its send waits for ever, so there is nothing to wait for.
      return accuse(pass, recv.pair, out);
    }
    if (!faults_.drop_nulls) answer_null(pass, recv.pair, recv.peer, out);
  }
}

void Passes::on_message(base::Rank from, PassMessage&& message, Effects& out) {
  if (message.kind == PassKind::Ask) {
    on_ask(from, message, out);
    return purge();
  }
  if (const auto tombstone = over_.find(message.pass); tombstone != over_.end()) {
    return on_late(from, message, tombstone->second, out);
  }
  Pass* pass = find(message.pass);
  switch (message.kind) {
    case PassKind::Start:
    case PassKind::Grads: {
      if (!pass && message.pass.root == self_) {
        // One of ours that we know nothing of: from before we were restarted.
        out.messages.push_back({from, over(message.pass, Verdict::Dropped,
                                           {base::Code::Aborted, self_, "it began this pass and has forgotten it"})});
        return;
      }
      if (!pass) pass = &find_or_keep(message.pass);
      pass->heard_from(from);
      if (PassFailure failure; is_dropped(message.within, failure)) {
        out.messages.push_back({from, over(message.pass, Verdict::Dropped, failure)});
        abort(*pass, failure, out);
        break;
      }
      if (message.opens && pass->state == PassState::Early) begin_here(*pass, from, message, out);
      if (message.kind != PassKind::Grads) break;
      if (pass->state < PassState::Running) {
        pass->early.emplace_back(from, std::move(message));
        break;
      }
      on_grads(*pass, from, message, out);
      go_on(*pass, out);
      break;
    }
    case PassKind::Done:
    case PassKind::Report:
      if (!pass) break;
      if (message.kind == PassKind::Done) {
        pass->ballot.done(from, message);
      } else {
        pass->blamed = false;  // Something has moved.
        pass->ballot.report(from, message);
      }
      decide(*pass, out);
      break;
    case PassKind::Blame:
      if (pass) blame(*pass, message.blamed, out);
      break;
    case PassKind::Which:
      if (pass && pass->state >= PassState::Running) reply_unknown(*pass, from, message.answers, out);
      break;
    case PassKind::Those:
      if (pass && pass->state == PassState::Running && !message.answers.empty()) {
        accuse(*pass, message.answers.front().pair, out);
      }
      break;
    case PassKind::Claim:
      if (pass && (pass->state == PassState::Running || pass->state == PassState::Done)) {
        on_claim(*pass, from, message.answers, out);
      }
      break;
    case PassKind::Fail:
      if (pass) abort(*pass, message.failure, out);
      break;
    case PassKind::Commit:
      if (pass && pass->state >= PassState::Done) end(*pass, true, {}, out);
      break;
    case PassKind::Abort:
      pass = &find_or_keep(message.pass);  // so that a START it has overtaken starts nothing
      abort(*pass, message.failure, out, &from);
      break;
    case PassKind::Over:
      if (pass) on_over(*pass, from, message, out);
      break;
    case PassKind::Ask:
      break;
  }
  purge();
}

/// Whether a pass around it was: its ABORT has overtaken what comes now.
bool Passes::is_dropped(const std::vector<PassId>& within, PassFailure& failure) const {
  for (const auto& outer : within) {
    const auto tombstone = over_.find(outer);
    if (tombstone == over_.end() || tombstone->second.committed) continue;
    failure = tombstone->second.failure;
    return true;
  }
  return false;
}

void Passes::on_late(base::Rank from, const PassMessage& message, const Tombstone& tombstone, Effects& out) {
  switch (message.kind) {
    case PassKind::Start:
    case PassKind::Grads:
    case PassKind::Done:
    case PassKind::Report:
    case PassKind::Fail:
      // Everybody in a pass that was committed hears so from the root, and was done when it was.
      if (!tombstone.committed) out.messages.push_back({from, over(message.pass, Verdict::Dropped, tombstone.failure)});
      break;
    default:
      break;
  }
}

NodeIndex Passes::next_ready(PassId id) {
  Pass* const pass = find(id);
  return pass ? pass->wave.next() : no_node;
}

bool Passes::has_ready(PassId id) const {
  const Pass* const pass = find(id);
  return pass && pass->wave.has_next();
}

void Passes::ran(PassId id, NodeIndex node, Effects& out, bool live) {
  Pass* const pass = find(id);
  if (!pass) return;
  pass->wave.ran(node, live);
  settle(*pass, out);
  if (pass->state == PassState::Ended) purge();
}

void Passes::fail(PassId id, PassFailure failure, Effects& out) {
  if (Pass* const pass = find(id)) abort_or_ask(*pass, failure, out);
  purge();
}

void Passes::close(Effects& out) {
  for (auto& pass : passes_) {
    if (pass.state == PassState::Ended) continue;  // with one around it
    abort_or_ask(pass, {base::Code::Closed, self_, "its context was released there"}, out);
  }
  passes_.clear();
  over_.clear();
  for (const auto& reader : std::exchange(readers_, {})) out.readers.push_back(reader.number);
}

bool Passes::answer_released(base::Rank self, const PassMessage& message, PassMessage& answer) {
  switch (message.kind) {
    case PassKind::Start:
    case PassKind::Grads:
    case PassKind::Done:
    case PassKind::Report:
    case PassKind::Fail:
    case PassKind::Ask:
      break;
    default:
      return false;
  }
  answer = {};
  answer.kind = PassKind::Over;
  answer.context = message.context;
  answer.pass = message.pass;
  answer.number = message.number;
  answer.verdict = message.kind == PassKind::Ask ? Verdict::Undecided : Verdict::Dropped;
  answer.failure = {base::Code::Closed, self, "its context was released there"};
  return true;
}

std::vector<Progress> Passes::progress() const {
  std::vector<Progress> all;
  for (const auto& pass : passes_) all.push_back(progress_of(pass, self_));
  return all;
}

Pass* Passes::find(PassId id) {
  for (auto& pass : passes_) {
    if (pass.id == id && pass.state != PassState::Ended) return &pass;
  }
  return nullptr;
}

Pass& Passes::find_or_keep(PassId id) {
  if (Pass* const pass = find(id)) return *pass;
  auto& pass = passes_.emplace_back();
  pass.id = id;
  return pass;
}

void Passes::purge() {
  std::erase_if(passes_, [](const Pass& pass) { return pass.state == PassState::Ended; });
}

PassMessage Passes::message(const Pass& pass, PassKind kind) const {
  PassMessage message;
  message.kind = kind;
  message.context = context_;
  message.pass = pass.id;
  message.fast = pass.fast;
  return message;
}

PassMessage Passes::start(const Pass& pass) const {
  auto start = message(pass, PassKind::Start);
  open(pass, start);
  return start;
}

void Passes::open(const Pass& pass, PassMessage& message) const {
  message.opens = true;
  message.options = pass.options;
  message.within = pass.within;
}

PassMessage Passes::ask(const Pass& pass) const {
  auto ask = message(pass, PassKind::Ask);
  ask.within = pass.within;
  return ask;
}

}  // namespace farad::autograd
