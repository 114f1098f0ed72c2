#pragma once

#include "explore/graph.h"

// Graphs small enough to try every order of everything.

namespace farad::autograd::explore {

/// d = add(a, b) at worker 1; e = mul(b, c) there too; the loss is of d alone.
inline Graph unused_call() {
  Graph g;
  g.workers = 2;
  const Input a{g.leaf(0), 0}, b{g.leaf(0), 0}, c{g.leaf(0), 0};
  const auto d_arguments = g.call(1, {a, b});
  const auto d = g.call(0, {{g.add(1, {{d_arguments, 0}, {d_arguments, 1}}), 0}});
  const auto e_arguments = g.call(1, {b, c});
  g.call(0, {{g.add(1, {{e_arguments, 0}, {e_arguments, 1}}), 0}});
  g.roots.push_back({0, {{g.add(0, {{d, 0}}), 0}}});
  return g;
}

/// 0 calls 1, which calls 2, which answers 0; a second tensor of the first call is ignored.
inline Graph triangle() {
  Graph g;
  g.workers = 3;
  const Input a{g.leaf(0), 0}, ignored{g.leaf(0), 0};
  const auto at_one = g.call(1, {a, ignored});
  const auto at_two = g.call(2, {{g.add(1, {{at_one, 0}}), 0}});
  const auto back = g.call(0, {{g.add(2, {{at_two, 0}, {g.leaf(2), 0}}), 0}});
  g.roots.push_back({0, {{back, 0}}});
  return g;
}

/// 0 has called 1 and 2, which do not know each other.
inline Graph star() {
  Graph g;
  g.workers = 3;
  const Input a{g.leaf(0), 0};
  const auto one = g.call(0, {{g.call(1, {a}), 0}});
  const auto two = g.call(0, {{g.call(2, {a}), 0}});
  g.roots.push_back({0, {{g.add(0, {{one, 0}, {two, 0}}), 0}}});
  return g;
}

/// One round trip, and nothing else.
inline Graph round_trip() {
  Graph g;
  g.workers = 2;
  const auto there = g.call(1, {{g.leaf(0), 0}});
  const auto back = g.call(0, {{g.add(1, {{there, 0}}), 0}});
  g.roots.push_back({0, {{back, 0}}});
  return g;
}

/// A node of worker 0 that begins a pass over a call to worker 1, which the outer pass has nothing for.
inline Graph nested() {
  Graph g;
  g.workers = 2;
  const auto node = g.add(0, {{g.leaf(0), 0}});
  g.roots.push_back({0, {{node, 0}}});
  g.talked.emplace(0, 1);
  const auto there = g.call(1, {{g.leaf(0), 0}});
  const auto back = g.call(0, {{g.add(1, {{there, 0}, {g.leaf(1), 0}}), 0}});
  g.nest(node, 0, {back, 0}, 0);
  return g;
}

/// 0 has called 1, where a node begins a pass over a call to 2, which 0 has never heard of.
inline Graph nested_elsewhere() {
  Graph g;
  g.workers = 3;
  const auto there = g.call(1, {{g.leaf(0), 0}});
  const auto node = g.add(1, {{there, 0}});
  const auto back = g.call(0, {{node, 0}});
  g.roots.push_back({0, {{back, 0}}});
  const auto further = g.call(2, {{g.leaf(1), 0}});
  const auto result = g.call(1, {{further, 0}});
  g.nest(node, 0, {result, 0}, 2);
  return g;
}

/// Two workers that compute for each other, and a third that is only told so.
inline Graph bystander() {
  Graph g = round_trip();
  g.workers = 3;
  g.talked.emplace(1, 2);
  return g;
}

/// 0 calls 1, which calls 2 and answers with what came of that; 0 and 2 have nothing to do with each other.
inline Graph chain() {
  Graph g;
  g.workers = 3;
  const auto at_one = g.call(1, {{g.leaf(0), 0}});
  const auto at_two = g.call(2, {{at_one, 0}});
  const auto back_at_one = g.call(1, {{g.add(2, {{at_two, 0}, {g.leaf(2), 0}}), 0}});
  const auto back = g.call(0, {{back_at_one, 0}});
  g.roots.push_back({0, {{back, 0}}});
  return g;
}

/// A round trip, and a call to oneself whose result is half used.
inline Graph self_call() {
  Graph g;
  g.workers = 2;
  const Input a{g.leaf(0), 0}, b{g.leaf(0), 0};
  const auto own = g.call(0, {a, b});
  const auto there = g.call(1, {{own, 0}});
  const auto back = g.call(0, {{there, 0}});
  g.roots.push_back({0, {{back, 0}}});
  return g;
}

}  // namespace farad::autograd::explore
