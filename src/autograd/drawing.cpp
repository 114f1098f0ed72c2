#include "autograd/drawing.h"

#include <torch/csrc/autograd/variable.h>

#include <map>
#include <set>
#include <sstream>

namespace farad::autograd {
namespace {

/// A node of all parts: whose, and which.
using Place = std::pair<size_t, uint32_t>;

std::string node_id(Place place) { return "n" + std::to_string(place.first) + "_" + std::to_string(place.second); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// From each recv to the send that its gradient goes to.
std::map<Place, Place> pairs_of(const std::vector<Drawing>& parts) {
  std::map<uint64_t, Place> sends;
  for (size_t part = 0; part < parts.size(); part++) {
    for (const auto& [pair, node] : parts[part].sends) sends.emplace(pair, Place(part, node));
  }
  std::map<Place, Place> pairs;
  for (size_t part = 0; part < parts.size(); part++) {
    for (const auto& [pair, node] : parts[part].recvs) {
      const auto send = sends.find(pair);
      if (send != sends.end()) pairs.emplace(Place(part, node), send->second);  // Else its sender is gone.
    }
  }
  return pairs;
}

/// How many gradients a pass from the roots brings to each node that they lead to; to the roots themselves, those of
/// other nodes only.
std::map<Place, int> count_gradients(const std::vector<Drawing>& parts, const std::map<Place, Place>& pairs) {
  std::map<Place, int> counts;
  std::vector<Place> reached;
  const auto reach = [&](Place place, int gradients) {
    const auto [count, first] = counts.try_emplace(place, 0);
    count->second += gradients;
    if (first) reached.push_back(place);
  };
  for (size_t part = 0; part < parts.size(); part++) {
    for (const auto root : parts[part].roots) reach({part, root}, 0);
  }
  for (size_t i = 0; i < reached.size(); i++) {
    const auto [part, node] = reached[i];
    for (const auto& [from, to] : parts[part].links) {
      if (from == node) reach({part, to}, 1);
    }
    if (const auto pair = pairs.find(reached[i]); pair != pairs.end()) reach(pair->second, 1);
  }
  return counts;
}

}  // namespace

Drawing draw(const LocalContext& context, const std::vector<at::Tensor>& losses,
             const std::vector<at::Tensor>& beside) {
  auto begun = context.look();
  auto& entries = begun.entries.roots;
  const size_t collectives = entries.size();  // Nodes that take part in every pass, and are no losses.
  for (const auto& loss : losses) entries.push_back(torch::autograd::impl::gradient_edge(loss));
  const size_t with_losses = entries.size();
  for (const auto& tensor : beside) entries.push_back(torch::autograd::impl::gradient_edge(tensor));
  Plan plan;
  scan(begun.entries, plan).raise();
  Drawing drawing;
  drawing.worker = context.group().name_of(context.group().self);
  for (auto* node : plan.nodes) drawing.nodes.push_back(node->name());
  for (NodeIndex node = 0; node < plan.size(); node++) {
    for (const Link& link : plan.topology.links_of(node)) {
      if (link.node != no_node) drawing.links.emplace_back(node, link.node);
    }
  }
  for (const auto& send : plan.topology.sends) drawing.sends.emplace_back(send.pair.value, send.node);
  for (const auto& recv : plan.topology.recvs) drawing.recvs.emplace_back(recv.pair.value, recv.node);
  // What was received and not sent on hangs on nothing here; its nodes may even be gone.
  for (const auto& recv : plan.topology.unreached) {
    drawing.recvs.emplace_back(recv.pair.value, static_cast<uint32_t>(drawing.nodes.size()));
    drawing.nodes.push_back("Recv(rank " + std::to_string(recv.peer.value) + ")");
  }
  std::set<NodeIndex> roots;
  for (size_t i = collectives; i < with_losses; i++) roots.insert(plan.find(entries[i]).node);
  drawing.roots.assign(roots.begin(), roots.end());
  for (const auto peer : begun.peers) drawing.peers.push_back(peer.value);
  return drawing;
}

std::string to_dot(ContextId context, const std::vector<Drawing>& parts) {
  const auto pairs = pairs_of(parts);
  const auto counts = count_gradients(parts, pairs);
  std::ostringstream out;
  out << "digraph context_" << context.value << " {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (size_t part = 0; part < parts.size(); part++) {
    const Drawing& drawing = parts[part];
    out << "  subgraph cluster_" << part << " {\n    label=" << quoted(drawing.worker) << ";\n";
    for (uint32_t node = 0; node < drawing.nodes.size(); node++) {
      const auto count = counts.find({part, node});
      auto label = drawing.nodes[node];
      if (count != counts.end()) label += " (" + std::to_string(count->second) + ")";
      const bool grey = !counts.empty() && count == counts.end();
      out << "    " << node_id({part, node}) << " [label=" << quoted(label)
          << (grey ? ", color=grey, fontcolor=grey" : "") << "];\n";
    }
    for (const auto& [from, to] : drawing.links) {
      out << "    " << node_id({part, from}) << " -> " << node_id({part, to}) << ";\n";
    }
    out << "  }\n";
  }
  for (const auto& [recv, send] : pairs) {
    out << "  " << node_id(recv) << " -> " << node_id(send) << " [style=dashed, color=blue];\n";
  }
  out << "}\n";
  return out.str();
}

}  // namespace farad::autograd
