#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/topology.h"

namespace farad::autograd::explore {

using NodeId = uint32_t;  ///< in a Graph: over all workers
using Input = std::pair<NodeId, uint32_t>;

/// A forward pass over several workers, as one would draw it.
struct Graph {
  struct Node {
    int worker = 0;
    Role role = Role::Function;
    std::vector<Input> next;
    uint32_t inputs = 1;
    int pair = -1;    ///< of a send or a recv
    int calls = -1;   ///< a pair: running this node makes that call
    int begins = -1;  ///< a root: running this node begins that pass, and goes on when it is complete
    bool throws = false;
  };
  struct Pair {
    int sender = 0, receiver = 0;
    NodeId send = 0, recv = 0;
    uint32_t tensors = 1;
    bool in_flight = false;  ///< the message has not arrived when passes begin
    bool by_hook = false;    ///< it was not even sent: see Node::calls
    int only_for = -1;       ///< a root: only that pass knows of it
    bool gradient = false;   ///< another pass made it, and so FAST does not mind if it is not used
  };
  struct Root {
    int worker = 0;
    std::vector<Input> inputs;
    bool fast = false;
    int outer = -1;  ///< a root: this pass is begun by a node of that one, see Node::begins
  };

  /// Two whose connection broke before any pass began, and who have met again since, by messages without gradients.
  struct Break {
    int a = 0, b = 0;
    bool a_heard = true, b_heard = true;  ///< who has not heard of it will
  };

  int workers = 1;
  std::vector<Node> nodes;
  std::vector<Pair> pairs;
  std::vector<Root> roots;               ///< one pass each
  std::set<std::pair<int, int>> talked;  ///< messages without gradients went between these
  int lost_before = -1;                  ///< a worker that was lost before any pass began
  std::vector<Break> broken_before;

  NodeId add(int worker, std::vector<Input> next, uint32_t inputs = 1, Role role = Role::Function);
  NodeId leaf(int worker) { return add(worker, {}, 1, Role::Leaf); }
  /// A message with these tensors; gives its recv.
  NodeId call(int to, std::vector<Input> tensors);
  PairId id_of(int pair) const;
  /// Its last call has not arrived yet.
  void delay() { pairs.back().in_flight = true; }
  /// Running `node` makes a call with a tensor of its worker; returns the recv.
  void hook(NodeId node, int to, Input tensor);
  /// Running `node` in the pass of roots[outer] begins a pass of its own, from `input`. What was called since there
  /// were `pairs_before` is known to that one alone.
  void nest(NodeId node, int outer, Input input, size_t pairs_before);
};

/// What one process would do: which nodes run, and how many paths lead from the roots to each input.
struct Oracle {
  Oracle(const Graph& graph, const Graph::Root& root);
  bool uses(int pair) const { return recvs.contains(pair); }

  std::set<NodeId> nodes;
  std::map<Input, int64_t> paths;
  std::set<int> recvs;  ///< pairs with a live recv
};

/// 1 to 5 workers, messages of 1 to 3 tensors, calls to oneself, some messages still in flight.
Graph random_graph(std::mt19937& random);
/// As above, but the loss is of everything, so that every call is used, and none is in flight.
Graph random_used_graph(std::mt19937& random);
/// As the first, with several passes and hooks that make calls.
Graph random_busy_graph(std::mt19937& random);
/// As above, with nodes that begin passes of their own, and nodes in these that do.
Graph random_nested_graph(std::mt19937& random);
/// What some pass does not use was made by another one, and not called for: FAST does not mind.
void mark_gradients(Graph& graph);
/// Any two of its workers have lost each other; at least one of them has heard of it.
void break_one_before(Graph& graph, std::mt19937& random);

}  // namespace farad::autograd::explore
