#include "explore/world.h"

#include <algorithm>

namespace farad::autograd::explore {
namespace {

int number(base::Rank rank) { return rank.value; }
int pair_of(PairId id) { return static_cast<int>(id.value & 0xffffffff); }

class Group final : public Surroundings {
 public:
  explicit Group(int workers) : workers_(workers) {}
  std::vector<base::Rank> members() const override {
    std::vector<base::Rank> all;
    for (int i = 0; i < workers_; ++i) all.push_back(rank(i));
    return all;
  }
  std::string describe(PairId pair) const override { return "<" + std::to_string(pair_of(pair)) + ">"; }

 private:
  int workers_;
};

std::vector<Oracle> ask_oracles(const Graph& graph) {
  std::vector<Oracle> oracles;
  for (const auto& root : graph.roots) oracles.emplace_back(graph, root);
  return oracles;
}

}  // namespace

World::World(std::shared_ptr<const Graph> graph, Dangers dangers, Faults faults)
    : graph_(std::move(graph)),
      oracles_(std::make_shared<std::vector<Oracle>>(ask_oracles(*graph_))),
      surroundings_(std::make_shared<Group>(graph_->workers)),
      dangers_(dangers) {
  for (int i = 0; i < graph_->workers; ++i) {
    workers_.push_back({Passes(ContextId(7), rank(i), *surroundings_, faults), true, {}, {}, {}, {}, {}, {}});
  }
  for (int i = 0; i < static_cast<int>(graph_->pairs.size()); ++i) {
    const auto& pair = graph_->pairs[static_cast<size_t>(i)];
    if (pair.by_hook) continue;
    if (pair.in_flight) {
      forward(i);
      continue;
    }
    at(pair.sender).sends.insert(i);
    at(pair.sender).peers.insert(pair.receiver);
    at(pair.receiver).recvs.insert(i);
    at(pair.receiver).peers.insert(pair.sender);
    connected_.insert(std::minmax(pair.sender, pair.receiver));
  }
  for (const auto& [a, b] : graph_->talked) {
    connected_.insert(std::minmax(a, b));
    at(a).peers.insert(b);
    at(b).peers.insert(a);
  }
  for (const auto& [a, b, a_heard, b_heard] : graph_->broken_before) {
    had_loss_ = true;
    for (const auto& [self, other, heard] : {std::tuple(a, b, a_heard), std::tuple(b, a, b_heard)}) {
      if (heard) {
        lose(self, other);
        at(self).peers.insert(other);
      } else {
        network_.push_back({Envelope::Lost, other, self, 0, 0, {}});
      }
    }
  }
  records_.resize(graph_->roots.size());
  if (graph_->lost_before < 0) return;
  at(graph_->lost_before).alive = false;
  std::erase_if(network_, [&](const Envelope& e) {
    if (e.from != graph_->lost_before && e.to != graph_->lost_before) return false;
    at(e.from).sends.erase(e.pair);  // the call has failed
    return true;
  });
  for (auto& worker : workers_) {  // They have not been told yet that calls to it came to nothing.
    worker.lost.insert(graph_->lost_before);
    worker.peers.erase(graph_->lost_before);
  }
}

std::vector<World::Step> World::steps(size_t& dangers_from) const {
  std::vector<Step> all;
  for (size_t i = 0; i < network_.size(); ++i) {
    if (can_arrive(network_[i])) all.push_back({Step::Deliver, i});
  }
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!workers_[w].alive) continue;
    for (size_t i = 0; i < workers_[w].scans.size(); ++i) all.push_back({Step::Scan, w, i});
    for (size_t p = 0; p < records_.size(); ++p) {
      if (records_[p].begun && workers_[w].passes.has_ready(records_[p].id)) all.push_back({Step::Run, w, p});
    }
  }
  for (size_t p = 0; p < records_.size(); ++p) {
    if (graph_->roots[p].outer >= 0) continue;
    if (!records_[p].begun && at(graph_->roots[p].worker).alive) all.push_back({Step::Begin, p});
  }
  dangers_from = all.size();
  if (dangers_.kills > 0) {
    for (size_t w = 0; w < workers_.size(); ++w) {
      const auto is_root = [&](const Graph::Root& root) { return root.worker == static_cast<int>(w); };
      if (dangers_.immortal_root && std::any_of(graph_->roots.begin(), graph_->roots.end(), is_root)) continue;
      if (workers_[w].alive) all.push_back({Step::Kill, w});
    }
  }
  if (dangers_.cuts > 0) {
    for (size_t a = 0; a < workers_.size(); ++a) {
      for (size_t b = a + 1; b < workers_.size(); ++b) {
        if (workers_[a].alive && workers_[b].alive) all.push_back({Step::Cut, a, b});
      }
    }
  }
  if (dangers_.refusals > 0) {
    for (size_t a = 0; a < workers_.size(); ++a) {
      for (size_t b = a + 1; b < workers_.size(); ++b) {
        const bool strangers = !connected_.contains({static_cast<int>(a), static_cast<int>(b)});
        if (strangers && workers_[a].alive && workers_[b].alive) all.push_back({Step::Refuse, a, b});
      }
    }
  }
  if (dangers_.cancels > 0) {
    for (size_t p = 0; p < records_.size(); ++p) {
      if (graph_->roots[p].outer >= 0) continue;
      if (records_[p].begun && !ending(p) && at(graph_->roots[p].worker).alive) all.push_back({Step::Cancel, p});
    }
  }
  if (dangers_.lost_calls > 0) {
    for (size_t i = 0; i < network_.size(); ++i) {
      if (network_[i].kind == Envelope::Forward && at(network_[i].from).alive &&
          !given_up_.contains(network_[i].pair)) {
        all.push_back({Step::GiveUp, i});
      }
    }
  }
  return all;
}

void World::take(Step step) {
  switch (step.kind) {
    case Step::Deliver:
      arrive(step.a);
      break;
    case Step::Run:
      run(static_cast<int>(step.a), records_[step.b].id);
      break;
    case Step::Scan:
      finish_scan(static_cast<int>(step.a), step.b);
      break;
    case Step::Begin: {
      Effects out;
      begin(step.a, out);
      apply(graph_->roots[step.a].worker, std::move(out));
      break;
    }
    case Step::Kill:
      --dangers_.kills;
      kill(static_cast<int>(step.a));
      break;
    case Step::Cut:
      --dangers_.cuts;
      had_loss_ = true;
      network_.push_back({Envelope::Lost, static_cast<int>(step.a), static_cast<int>(step.b), 0, 0, {}});
      network_.push_back({Envelope::Lost, static_cast<int>(step.b), static_cast<int>(step.a), 0, 0, {}});
      break;
    case Step::Refuse:
      --dangers_.refusals;
      had_loss_ = true;
      refused_.emplace(static_cast<int>(step.a), static_cast<int>(step.b));
      break;
    case Step::Cancel: {
      --dangers_.cancels;
      records_[step.a].cancelled = true;
      const int root = graph_->roots[step.a].worker;
      Effects out;
      at(root).passes.fail(records_[step.a].id, {base::Code::Cancelled, rank(root), "cancelled"}, out);
      apply(root, std::move(out));
      break;
    }
    case Step::GiveUp: {
      --dangers_.lost_calls;
      const int pair = network_[step.a].pair, sender = network_[step.a].from;
      given_up_.insert(pair);
      at(sender).sends.erase(pair);
      Effects out;
      at(sender).passes.null_send(graph_->id_of(pair), out);
      apply(sender, std::move(out));
      break;
    }
  }
  if (!dangers_.atomic_nodes) return;
  for (int w = 0; w < graph_->workers; ++w) {
    for (const auto& record : records_) {
      while (at(w).alive && record.begun && at(w).passes.has_ready(record.id)) run(w, record.id);
    }
  }
}

void World::finish_scan(int worker, size_t index) {
  auto& self = at(worker);
  const Scan scan = std::move(self.scans[index]);
  self.scans.erase(self.scans.begin() + static_cast<ptrdiff_t>(index));
  Effects out;
  self.passes.scanned(scan.pass, scan.snapshot, out);
  apply(worker, std::move(out));
}

void World::run(int worker, PassId pass) {
  auto& self = at(worker);
  const NodeIndex index = self.passes.next_ready(pass);
  if (index == no_node) return;
  const NodeId id = self.nodes[pass][index];
  const auto& node = graph_->nodes[id];
  auto& known = record(pass);
  if (!known.executed.insert(id).second) accuse("node " + std::to_string(id) + " ran twice");
  if (!oracle(known).nodes.contains(id)) accuse("node " + std::to_string(id) + " ran, and no root leads to it");
  int64_t total = 0;
  for (uint32_t i = 0; i < node.inputs; ++i) {
    const auto value = known.values.find({id, i});
    if (value == known.values.end()) continue;
    total += value->second;
    if (node.role == Role::Send) known.values[node.next[i]] += value->second;
  }
  if (node.role == Role::Function) {
    for (const auto& next : node.next) known.values[next] += total;
  }
  if (node.calls >= 0 && made_.emplace(node.calls, pass).second) forward(node.calls);
  Effects out;
  if (node.throws) {
    self.passes.fail(pass, {base::Code::RemoteError, rank(worker), "node " + std::to_string(id) + " threw"}, out);
  } else if (node.begins >= 0 &&
             records_[static_cast<size_t>(graph_->roots[static_cast<size_t>(node.begins)].outer)].id == pass) {
    records_[static_cast<size_t>(node.begins)].waiting = index;
    begin(static_cast<size_t>(node.begins), out);
  } else {
    self.passes.ran(pass, index, out);
  }
  apply(worker, std::move(out));
}

void World::begin(size_t pass, Effects& out) {
  const auto& root = graph_->roots[pass];
  auto& record = records_[pass];
  auto& passes = at(root.worker).passes;
  record.begun = true;
  record.id = root.outer < 0 ? passes.begin(root.fast, {'o'}, out)
                             : passes.begin_within(records_[static_cast<size_t>(root.outer)].id, {'o'}, out);
  for (const auto& input : root.inputs) ++record.values[input];
}

/// The node that began this pass, if there is one and it has not gone on yet.
void World::go_on(int worker, PassId inner, const PassFailure* failure) {
  auto& known = record(inner);
  if (known.waiting == no_node || number(inner.root) != worker) return;
  const auto index = std::exchange(known.waiting, no_node);
  const auto outer =
      records_[static_cast<size_t>(graph_->roots[static_cast<size_t>(&known - records_.data())].outer)].id;
  Effects out;
  if (failure) {
    at(worker).passes.fail(outer, *failure, out);
  } else {
    at(worker).passes.ran(outer, index, out);
  }
  apply(worker, std::move(out));
}

void World::apply(int worker, Effects&& effects) {
  for (auto& scan : effects.scans) {
    if (!record(scan.pass).began.insert(worker).second)
      accuse("a pass began twice at worker " + std::to_string(worker));
    at(worker).scans.push_back({scan.pass, snapshot(worker, scan.pass)});
  }
  for (const auto& delivery : effects.deliveries) {
    const auto& values = *static_cast<const std::vector<int64_t>*>(delivery.cargo.get());
    const NodeId id = at(worker).nodes[delivery.pass][delivery.send];
    size_t next = delivery.first_tensor;
    const auto states = effects.states_of(delivery);
    for (uint32_t i = 0; i < states.size(); ++i) {
      if (states[i] == TensorState::Tensor) record(delivery.pass).values[{id, i}] += values[next++];
    }
  }
  for (const auto& hand_over : effects.hand_overs) {
    auto& known = record(hand_over.pass);
    const NodeId recv = at(worker).nodes[hand_over.pass][hand_over.recv];
    const NodeId send = at(worker).nodes[hand_over.pass][hand_over.send];
    for (uint32_t i = 0; i < graph_->nodes[recv].inputs; ++i) {
      if (const auto value = known.values.find({recv, i}); value != known.values.end()) {
        known.values[{send, i}] += value->second;
      }
    }
  }
  for (auto& outgoing : effects.messages) carry_out(worker, std::move(outgoing));
  for (const auto& ending : effects.endings) ended(worker, ending);
  for (const auto& pass : effects.held) go_on(worker, pass, nullptr);
  for (const auto& ending : effects.endings) go_on(worker, ending.pass, &ending.failure);
  if (dangers_.slow_scans) return;
  while (!at(worker).scans.empty()) finish_scan(worker, 0);
}

void World::carry_out(int worker, Effects::Outgoing&& outgoing) {
  auto& message = outgoing.message;
  ++messages_[message.kind];
  answers_ += static_cast<int>(message.answers.size());
  if (message.kind == PassKind::Grads) {
    auto values = std::make_shared<std::vector<int64_t>>();
    size_t next = 0;
    for (const auto& answer : message.answers) {
      for (uint32_t i = 0; i < answer.tensors; ++i) {
        if (message.states[next++] != TensorState::Tensor) continue;
        values->push_back(record(message.pass).values[{at(worker).nodes[message.pass][answer.node], i}]);
      }
    }
    message.cargo = std::move(values);
  }
  post({Envelope::Message, worker, number(outgoing.to), 0, 0, std::move(message)});
}

World::Record& World::record(PassId pass) {
  for (auto& record : records_) {
    if (record.begun && record.id == pass) return record;
  }
  std::abort();  // a pass that nobody began
}

/// Whether that is a gradient of that pass, which has to do with it as little as the calls of another one's rerun.
bool World::brought(int pair, PassId pass) const {
  const auto made = made_.find(pair);
  return made != made_.end() && made->second == pass && graph_->pairs[static_cast<size_t>(pair)].gradient;
}

const Oracle& World::oracle(const Record& record) const {
  return (*oracles_)[static_cast<size_t>(&record - records_.data())];
}

void World::ended(int worker, const Effects::Ending& ending) {
  auto& known = record(ending.pass);
  if (!known.endings.try_emplace(worker, ending).second) accuse("a pass ended twice at one worker");
  if (!known.began.contains(worker)) accuse("a pass ended where it had not begun");
  if (ending.committed && known.executed != oracle(known).nodes) accuse("committed before all had run");
}

const Effects::Ending* World::ending(size_t pass) const {
  const auto at = records_[pass].endings.find(graph_->roots[pass].worker);
  return at == records_[pass].endings.end() ? nullptr : &at->second;
}

void World::accuse(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

}  // namespace farad::autograd::explore
