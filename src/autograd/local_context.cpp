#include "autograd/local_context.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "autograd/current.h"

namespace farad::autograd {
namespace {

const char* to_text(PassState state) {
  switch (state) {
    case PassState::Early:
      return "has not begun here";
    case PassState::Scanning:
      return "begins";
    case PassState::Running:
      return "runs";
    case PassState::Done:
      return "done here";
    case PassState::Orphan:
      return "done here, its root is lost";
    case PassState::Ended:
      break;
  }
  return "has ended";
}

}  // namespace

LocalContext::LocalContext(ContextId id, std::shared_ptr<const Group> group, uint64_t life)
    : id_(id), life_(life), group_(std::move(group)), passes_(id, group_->self, *this, {}, life) {}

// --- Messages ---

bool LocalContext::begin_message(base::Rank to, Kind kind) {
  base::Lock lock(mutex_);
  if (released_) return false;
  if (kind == Kind::Forward) peers_.meet(to);
  return true;
}

bool LocalContext::take_message(net::Peer from, Kind kind) {
  base::Lock lock(mutex_);
  if (released_) return false;
  if (kind == Kind::Forward) peers_.meet(from);
  return true;
}

// --- Recording ---

void LocalContext::add(compat::Ptr<SendNode> node, uint64_t call) {
  base::Lock lock(mutex_);
  if (released_ || in_vain_.contains(node->passage().rerun)) return;
  recording_.add(std::move(node), call);
}

bool LocalContext::add(compat::Ptr<DeferredNode> node, RerunId rerun) {
  base::Lock lock(mutex_);
  if (released_) return false;
  deferred_.emplace_back(std::move(node), rerun);
  return true;
}

PairId LocalContext::result_of(net::Peer to, uint64_t call) const {
  base::Lock lock(mutex_);
  return recording_.result_of(to, call);
}

uint64_t LocalContext::path_of(PairId pair) const {
  base::Lock lock(mutex_);
  if (const auto* received = recording_.find_received(pair)) return received->path;
  const auto* sent = recording_.find_sent(pair);
  return sent ? sent->node->passage().path : 0;
}

uint64_t LocalContext::new_path() { return autograd::path_of(1, ++apart_); }

Debug::Context LocalContext::describe() const {
  base::Lock lock(mutex_);
  Debug::Context shown{id_.value, recording_.sent().size(), recording_.received().size()};
  for (const auto& progress : passes_.progress()) {
    auto& pass = shown.passes.emplace_back(Debug::Pass{group_->name_of(progress.pass.root), progress.pass.number,
                                                       to_text(progress.state), progress.nodes, progress.fired,
                                                       progress.running});
    for (const auto worker : progress.waits_for) pass.waits_for.push_back(group_->name_of(worker));
  }
  return shown;
}

LocalContext::Work::Begun LocalContext::look() const {
  base::Lock lock(mutex_);
  return snapshot(nullptr);
}

// --- Passes ---

LocalContext::Work LocalContext::step(const std::function<void(Passes&, Effects&)>& change) {
  Work work;
  base::Lock lock(mutex_);
  if (released_) return work;
  change(passes_, work.effects);
  gather(work);
  return work;
}

bool LocalContext::begin(bool fast, std::string options, std::shared_ptr<Part> part, Work& work) {
  base::Lock lock(mutex_);
  if (released_) return false;
  part->id = passes_.begin(fast, std::move(options), work.effects);
  parts_.emplace(part->id, part);
  gather(work);
  return true;
}

bool LocalContext::begin_within(PassId outer, std::shared_ptr<Part> part, Work& work) {
  base::Lock lock(mutex_);
  if (released_) return false;
  part->id = passes_.begin_within(outer, encode(part->options), work.effects);
  if (part->id.number == 0) return false;
  parts_.emplace(part->id, part);
  gather(work);
  return true;
}

LocalContext::Work LocalContext::scanned(Part& part, const Snapshot& snapshot) {
  Work work;
  base::Lock lock(mutex_);
  part.running = false;
  if (part.ended) return work;
  passes_.scanned(part.id, snapshot, work.effects);
  gather(work);
  return work;
}

std::optional<LocalContext::Work> LocalContext::add(PairId pair, Recording::Received received) {
  base::Lock lock(mutex_);
  if (released_ || in_vain_.contains(received.rerun)) return {};
  if (passes_.active() == 0) {
    recording_.add(pair, std::move(received));
    return {};
  }
  std::optional<Work> work(std::in_place);
  const auto from = received.from.rank;
  const bool gradient = received.of_pass.number != 0;
  std::vector<PassId> concerned;
  for (const auto& [pass, part] : parts_) {
    if (pass != received.of_pass && part->options.rerun == received.rerun) concerned.push_back(pass);
  }
  recording_.add(pair, std::move(received));
  passes_.late_recv(pair, from, gradient, work->effects, [&](PassId pass) {
    return std::find(concerned.begin(), concerned.end(), pass) != concerned.end();
  });
  gather(*work);
  return work;
}

std::optional<LocalContext::Work> LocalContext::went(PairId pair, net::Peer to) {
  compat::Ptr<SendNode> node;
  base::Lock lock(mutex_);
  if (released_) return {};
  if (peers_.meet(to)) {
    if (pair.value) recording_.went(pair, to);
    return {};
  }
  auto work = drop_now(node, pair);  // That life was lost before we could say that the message went there.
  lock.unlock();
  return work;
}

LocalContext::Work LocalContext::drop(PairId pair) {
  compat::Ptr<SendNode> node;
  base::Lock lock(mutex_);
  auto work = drop_now(node, pair);
  lock.unlock();
  return work;
}

/// `node` is for the caller to let go of after the lock: it may be the last that holds a graph.
LocalContext::Work LocalContext::drop_now(compat::Ptr<SendNode>& node, PairId pair) {
  Work work;
  node = recording_.drop(pair);
  if (released_ || !node) return work;
  passes_.null_send(pair, work.effects);
  gather(work);
  return work;
}

std::vector<base::Rank> LocalContext::forget(RerunId rerun, Work& work) {
  base::Lock lock(mutex_);
  if (released_ || !in_vain_.insert(rerun).second) return {};
  forget_now(rerun, work);
  auto others = peers_.met();
  std::erase(others, group_->self);
  return others;
}

void LocalContext::forget_now(RerunId rerun, Work& work) {
  auto nodes = recording_.forget(rerun);
  std::move(nodes.begin(), nodes.end(), std::back_inserter(work.forgotten));
  std::erase_if(deferred_, [&](auto& deferred) {
    if (deferred.second != rerun) return false;
    work.deferred.push_back(std::move(deferred.first));
    return true;
  });
}

LocalContext::Work LocalContext::on_lost(net::Peer peer) {
  Work work;
  std::vector<compat::Ptr<SendNode>> nodes;
  base::Lock lock(mutex_);
  if (released_) return work;
  peers_.lost(peer);
  nodes = recording_.on_lost(peer);
  passes_.on_lost(peer.rank, work.effects);
  gather(work);
  lock.unlock();
  return work;
}

/// Here, under the lock, everything is put where its pass will look for it; what takes time is left to Backward.
void LocalContext::gather(Work& work) {
  auto& effects = work.effects;
  for (const auto& scan : effects.scans) {
    auto& part = parts_[scan.pass];
    if (!part) {
      part = std::make_shared<Part>();
      part->id = scan.pass;
      part->options_status = decode(scan.options, part->options);
    }
    part->running = true;  // by the one who scans, until the pass has been told
    work.begun.push_back(snapshot(part));
  }
  for (const auto& delivery : effects.deliveries) {
    Part::Arrival arrival{delivery.send, {}};
    const auto* cargo = static_cast<const Cargo*>(delivery.cargo.get());
    size_t next = delivery.first_tensor;
    for (const auto state : effects.states_of(delivery)) {
      arrival.gradients.push_back(state == TensorState::Tensor ? std::move(cargo->tensors.at(next++)) : at::Tensor());
    }
    parts_.at(delivery.pass)->arrivals.push_back(std::move(arrival));
  }
  for (const auto& own : effects.hand_overs) {
    auto& part = *parts_.at(own.pass);
    part.arrivals.push_back({own.send, std::move(part.answers[own.recv])});
    part.answers.erase(own.recv);
  }
  for (auto& [to, message] : effects.messages) {
    auto& tensors = work.tensors.emplace_back();
    if (message.kind != PassKind::Grads) continue;
    size_t state = 0;
    for (const auto& answer : message.answers) {
      if (answer.tensors == 0) continue;
      auto& gradients = parts_.at(message.pass)->answers.at(answer.node);
      for (auto& gradient : gradients) {
        auto& said = message.states[state++];
        if (said != TensorState::Tensor) continue;
        if (gradient.defined()) {
          tensors.push_back(std::move(gradient));
        } else {
          said = TensorState::Undefined;
        }
      }
      parts_.at(message.pass)->answers.erase(answer.node);
    }
  }
  for (const auto& ending : effects.endings) {
    const auto found = parts_.find(ending.pass);
    auto& part = work.ended.emplace_back();
    if (found == parts_.end()) continue;
    part = std::move(found->second);
    parts_.erase(found);
    part->ended = true;
    if (part->options.rerun.value) forget_now(part->options.rerun, work);
    part->committed = ending.committed;
    part->failure = ending.failure;
    if (part->waiter) work.waiters.push_back(std::move(part->waiter));
    // Before anybody can hear that the pass is over: whoever reads from then on must find them. They are added up by
    // somebody who may take his time, and may fail.
    if (ending.committed && part->evaluator) {
      if (auto found_here = part->evaluator->take_gradients(); !found_here.empty()) {
        if (!sums_) sums_ = std::make_shared<GradientSums>();
        sums_->hand_in(std::move(found_here), part->options.create_graph);
      }
    }
  }
  for (const auto& pass : effects.held) {
    const auto& part = parts_.at(pass);
    part->held = true;
    if (part->waiter) work.waiters.push_back(std::move(part->waiter));
  }
  for (const auto& pass : effects.runnable) {
    const auto found = parts_.find(pass);
    if (found == parts_.end() || found->second->running) continue;
    auto& part = found->second;
    part->running = true;
    if (part->waiter) {
      work.waiters.push_back(std::move(part->waiter));
    } else if (!part->is_root()) {
      work.woken.push_back(part);
    }
  }
  for (const auto reader : effects.readers) {
    if (auto found = readers_.extract(reader)) work.waiters.push_back(std::move(found.mapped()));
  }
}

LocalContext::Work::Begun LocalContext::snapshot(std::shared_ptr<Part> part) const {
  Work::Begun begun{std::move(part), {}, peers_.met(), {}};
  auto& entries = begun.entries;
  entries.context = id_;
  entries.rerun = begun.part ? begun.part->options.rerun : RerunId();
  if (begun.part && begun.part->roots) entries.roots = begun.part->roots->edges;
  for (const auto& [node, rerun] : deferred_) {
    if (rerun != entries.rerun) continue;
    entries.roots.emplace_back(node, node->pulse());
    if (!begun.part) continue;
    auto& deferred = begun.part->deferred.emplace_back();
    deferred.node = node;
    deferred.which = node->enter(begun.part->id);
    begun.part->deferred_by_node.emplace(node.get(), &deferred);
  }
  entries.sends.reserve(recording_.sent().size());
  for (const auto& [pair, sent] : recording_.sent()) {
    if (sent.node->passage().rerun == entries.rerun) entries.sends.push_back(sent.node);
  }
  entries.recvs.reserve(recording_.received().size());
  for (const auto& [pair, received] : recording_.received()) {
    if (received.rerun != entries.rerun) continue;
    const bool gradient = received.of_pass.number != 0;
    if (gradient && begun.part && received.of_pass == begun.part->id) continue;  // In FAST that is what began it here.
    const auto from = received.from.rank;
    entries.recvs.push_back({no_node, pair, from, received.tensors, gradient});
    // One that came back is a peer again; it will refuse what was not for its new life.
    if (received.lost && !std::binary_search(begun.peers.begin(), begun.peers.end(), from)) begun.lost.push_back(from);
  }
  // Each is answered once.
  const auto pair_of = [](const Crossing& recv) { return recv.pair; };
  if (!std::ranges::is_sorted(entries.recvs, {}, pair_of)) std::ranges::sort(entries.recvs, {}, pair_of);
  const auto [first, last] = std::ranges::unique(entries.recvs, {}, pair_of);
  entries.recvs.erase(first, last);
  return begun;
}

std::string LocalContext::describe(PairId pair) const {
  const auto tell = [&](const std::string& call, base::Rank from, base::Rank to) {
    return "\"" + call + "\" (tensors from " + group_->name_of(from) + " to " + group_->name_of(to) + ")";
  };
  if (const auto* sent = recording_.find_sent(pair)) {
    return tell(sent->node->passage().call.text(), group_->self, sent->to.rank);
  }
  if (const auto* got = recording_.find_received(pair)) {
    return tell(got->call.text(), got->from.rank, group_->self);
  }
  return "a call that this worker does not know";
}

// --- The end ---

LocalContext::Work LocalContext::release(Keep keep) {
  Work work;
  auto remains = std::make_shared<std::pair<Recording, std::shared_ptr<GradientSums>>>();
  base::Lock lock(mutex_);
  if (std::exchange(released_, true)) return work;
  passes_.close(work.effects);
  gather(work);
  std::swap(remains->first, recording_);
  if (keep == Keep::Nothing) remains->second = std::move(sums_);
  for (auto& [node, rerun] : deferred_) work.deferred.push_back(std::move(node));
  deferred_.clear();
  work.remains = std::move(remains);
  return work;
}

bool LocalContext::released() const {
  base::Lock lock(mutex_);
  return released_;
}

}  // namespace farad::autograd
