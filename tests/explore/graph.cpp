#include "explore/graph.h"

namespace farad::autograd::explore {

NodeId Graph::add(int worker, std::vector<Input> next, uint32_t inputs, Role role) {
  nodes.push_back({worker, role, std::move(next), inputs});
  return static_cast<NodeId>(nodes.size() - 1);
}

NodeId Graph::call(int to, std::vector<Input> tensors) {
  const int from = nodes[tensors.front().first].worker;
  const auto count = static_cast<uint32_t>(tensors.size());
  Pair pair{from, to, 0, 0, count};
  pair.send = add(from, std::move(tensors), count, Role::Send);
  pair.recv = add(to, {}, count, Role::Recv);
  nodes[pair.send].pair = nodes[pair.recv].pair = static_cast<int>(pairs.size());
  pairs.push_back(pair);
  return pair.recv;
}

PairId Graph::id_of(int pair) const {
  const auto sender = static_cast<uint64_t>(pairs[static_cast<size_t>(pair)].sender);
  return PairId(sender << 48 | static_cast<uint64_t>(pair));
}

void Graph::hook(NodeId node, int to, Input tensor) {
  call(to, {tensor});
  pairs.back().by_hook = true;
  nodes[node].calls = static_cast<int>(pairs.size() - 1);
}

void Graph::nest(NodeId node, int outer, Input input, size_t pairs_before) {
  const int root = static_cast<int>(roots.size());
  roots.push_back({nodes[node].worker, {input}, roots[static_cast<size_t>(outer)].fast, outer});
  nodes[node].begins = root;
  for (; pairs_before < pairs.size(); ++pairs_before) pairs[pairs_before].only_for = root;
}

Oracle::Oracle(const Graph& graph, const Graph::Root& root) {
  for (const auto& input : root.inputs) ++paths[input];
  for (auto id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {  // what was made later comes first
    const auto& node = graph.nodes[id];
    int64_t total = 0;
    bool live = false;
    for (uint32_t i = 0; i < node.inputs; ++i) {
      const auto at = paths.find({id, i});
      if (at == paths.end()) continue;
      live = true;
      total += at->second;
      if (node.role == Role::Recv) paths[{graph.pairs[static_cast<size_t>(node.pair)].send, i}] += at->second;
      if (node.role == Role::Send) paths[node.next[i]] += at->second;
    }
    if (!live) continue;
    nodes.insert(id);
    if (node.role == Role::Recv) recvs.insert(node.pair);
    if (node.role == Role::Function) {
      for (const auto& next : node.next) paths[next] += total;
    }
  }
}

namespace {

size_t below(std::mt19937& random, size_t bound) { return random() % bound; }
bool chance(std::mt19937& random, unsigned percent) { return random() % 100 < percent; }

/// What nobody has used goes to worker 0, and from there into the loss.
void use_everything(Graph& graph) {
  std::set<NodeId> used;
  for (const auto& node : graph.nodes) {
    for (const auto& next : node.next) used.insert(next.first);
  }
  std::vector<std::vector<Input>> loose(static_cast<size_t>(graph.workers));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const auto& node = graph.nodes[id];
    if (node.role != Role::Send && !used.contains(id)) loose[static_cast<size_t>(node.worker)].emplace_back(id, 0);
  }
  std::vector<Input> all = loose[0];
  for (int worker = 1; worker < graph.workers; ++worker) {
    const auto& here = loose[static_cast<size_t>(worker)];
    if (!here.empty()) all.emplace_back(graph.call(0, {{graph.add(worker, here), 0}}), 0);
  }
  graph.roots.push_back({0, {{graph.add(0, all), 0}}});
}

enum class Kind { Plain, Used, Busy };

Graph build(std::mt19937& random, Kind kind) {
  const bool busy = kind == Kind::Busy;
  Graph graph;
  graph.workers = 1 + static_cast<int>(below(random, 5));
  const auto any_worker = [&] { return static_cast<int>(below(random, static_cast<size_t>(graph.workers))); };
  std::vector<std::vector<Input>> tensors(static_cast<size_t>(graph.workers));
  const auto some_of = [&](int worker) {
    const auto& from = tensors[static_cast<size_t>(worker)];
    std::vector<Input> some(1 + below(random, std::min<size_t>(3, from.size())));
    for (auto& one : some) one = from[below(random, from.size())];
    return some;
  };
  for (int worker = 0; worker < graph.workers; ++worker) {
    for (size_t i = 1 + below(random, 2); i > 0; --i)
      tensors[static_cast<size_t>(worker)].emplace_back(graph.leaf(worker), 0);
  }
  for (size_t step = 3 + below(random, 38); step > 0; --step) {
    const int worker = any_worker();
    if (chance(random, 50)) {
      const int to = any_worker();
      const auto recv = graph.call(to, some_of(worker));
      if (kind != Kind::Used && chance(random, 8)) {
        graph.delay();
        continue;
      }
      for (uint32_t i = 0; i < graph.nodes[recv].inputs; ++i) tensors[static_cast<size_t>(to)].emplace_back(recv, i);
    } else {
      const auto outputs = static_cast<uint32_t>(1 + below(random, 2));
      const auto node = graph.add(worker, some_of(worker), outputs);
      for (uint32_t i = 0; i < outputs; ++i) tensors[static_cast<size_t>(worker)].emplace_back(node, i);
    }
    if (chance(random, 5)) graph.talked.emplace(worker, any_worker());
  }
  if (kind == Kind::Used) {
    use_everything(graph);
    return graph;
  }
  for (size_t passes = busy ? 1 + below(random, 3) : 1; passes > 0; --passes) {
    const int worker = any_worker();
    auto roots = some_of(worker);
    roots.resize(std::min<size_t>(2, roots.size()));
    graph.roots.push_back({worker, roots});
  }
  const auto last = graph.nodes.size();
  for (size_t hooks = busy ? below(random, 3) : 0; hooks > 0; --hooks) {
    const auto node = static_cast<NodeId>(below(random, last));
    const int worker = graph.nodes[node].worker;
    if (graph.nodes[node].calls >= 0) continue;
    graph.hook(node, any_worker(), tensors[static_cast<size_t>(worker)].front());
  }
  return graph;
}

}  // namespace

Graph random_graph(std::mt19937& random) { return build(random, Kind::Plain); }
Graph random_used_graph(std::mt19937& random) { return build(random, Kind::Used); }
Graph random_busy_graph(std::mt19937& random) { return build(random, Kind::Busy); }

Graph random_nested_graph(std::mt19937& random) {
  auto graph = random_busy_graph(random);
  const auto any_worker = [&] { return static_cast<int>(below(random, static_cast<size_t>(graph.workers))); };
  for (size_t passes = 1 + below(random, 3); passes > 0; --passes) {
    // Of a pass that is there, perhaps one that is itself begun by a node.
    const auto outer = static_cast<int>(below(random, graph.roots.size()));
    const Oracle known(graph, graph.roots[static_cast<size_t>(outer)]);
    std::vector<NodeId> able;
    for (const auto id : known.nodes) {
      if (graph.nodes[id].role == Role::Function && graph.nodes[id].begins < 0) able.push_back(id);
    }
    if (able.empty()) continue;
    const auto node = able[below(random, able.size())];
    const auto pairs_before = graph.pairs.size();
    const int home = graph.nodes[node].worker;
    Input input{graph.leaf(home), 0};
    int worker = home;
    for (size_t calls = 1 + below(random, 3); calls > 0; --calls) {
      const int to = any_worker();
      input = {graph.add(to, {{graph.call(to, {input}), 0}, {graph.leaf(to), 0}}), 0};
      worker = to;
    }
    if (worker != home) input = {graph.add(home, {{graph.call(home, {input}), 0}}), 0};
    graph.nest(node, outer, input, pairs_before);
  }
  return graph;
}

void mark_gradients(Graph& graph) {
  for (const auto& root : graph.roots) {
    const Oracle wanted(graph, root);
    for (size_t i = 0; i < graph.pairs.size(); ++i) {
      if (!wanted.uses(static_cast<int>(i))) graph.pairs[i].gradient = true;
    }
  }
}

void break_one_before(Graph& graph, std::mt19937& random) {
  if (graph.workers == 1) return;
  const auto workers = static_cast<unsigned>(graph.workers);
  const auto a = static_cast<int>(random() % workers);
  const auto b = static_cast<int>((static_cast<unsigned>(a) + 1 + random() % (workers - 1)) % workers);
  graph.broken_before.push_back({a, b, true, random() % 2 == 0});
}

}  // namespace farad::autograd::explore
