#include "autograd/engine/needed.h"

#include <algorithm>

namespace farad::autograd {
namespace {

/// Every node after all that lead to it.
std::vector<NodeIndex> topological_order(const Topology& topology) {
  std::vector<uint32_t> pending(topology.size());
  for (const Link& link : topology.links) {
    if (link.node != no_node) pending[link.node]++;
  }
  std::vector<NodeIndex> order;
  order.reserve(topology.size());
  for (NodeIndex node = 0; node < topology.size(); node++) {
    if (pending[node] == 0) order.push_back(node);
  }
  for (size_t next = 0; next < order.size(); next++) {
    for (const Link& link : topology.links_of(order[next])) {
      if (link.node != no_node && --pending[link.node] == 0) order.push_back(link.node);
    }
  }
  return order;
}

}  // namespace

std::vector<Need> find_needed(const Topology& topology, std::span<const NodeIndex> leaves,
                              std::span<const Link> captures) {
  std::vector<Need> needs(topology.size(), Need::Nothing);
  for (const Link& capture : captures) {
    if (capture.node != no_node) needs[capture.node] = Need::Capture;
  }
  for (const NodeIndex leaf : leaves) needs[leaf] = Need::Call;
  for (const Crossing& recv : topology.recvs) needs[recv.node] = Need::Call;
  const auto order = topological_order(topology);
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    const auto links = topology.links_of(*node);
    const bool leads_on = std::any_of(links.begin(), links.end(), [&](const Link& link) {
      return link.node != no_node && needs[link.node] != Need::Nothing;
    });
    if (leads_on) needs[*node] = Need::Call;
  }
  return needs;
}

}  // namespace farad::autograd
