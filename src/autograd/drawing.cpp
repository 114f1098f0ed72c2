#include "autograd/drawing.h"

#include <map>
#include <sstream>

namespace farad::autograd {
namespace {

std::string node_id(size_t part, uint32_t node) { return "n" + std::to_string(part) + "_" + std::to_string(node); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Drawing draw(const LocalContext& context) {
  const auto begun = context.look();
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
  for (const auto peer : begun.peers) drawing.peers.push_back(peer.value);
  return drawing;
}

std::string to_dot(ContextId context, const std::vector<Drawing>& parts) {
  std::ostringstream out;
  out << "digraph context_" << context.value << " {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  std::map<uint64_t, std::string> sends;
  for (size_t part = 0; part < parts.size(); part++) {
    const Drawing& drawing = parts[part];
    out << "  subgraph cluster_" << part << " {\n    label=" << quoted(drawing.worker) << ";\n";
    for (uint32_t node = 0; node < drawing.nodes.size(); node++) {
      out << "    " << node_id(part, node) << " [label=" << quoted(drawing.nodes[node]) << "];\n";
    }
    for (const auto& [from, to] : drawing.links) {
      out << "    " << node_id(part, from) << " -> " << node_id(part, to) << ";\n";
    }
    out << "  }\n";
    for (const auto& [pair, node] : drawing.sends) sends.emplace(pair, node_id(part, node));
  }
  for (size_t part = 0; part < parts.size(); part++) {
    for (const auto& [pair, node] : parts[part].recvs) {
      const auto send = sends.find(pair);
      if (send == sends.end()) continue;  // Its sender is gone, or has withdrawn it.
      out << "  " << node_id(part, node) << " -> " << send->second << " [style=dashed, color=blue];\n";
    }
  }
  out << "}\n";
  return out.str();
}

}  // namespace farad::autograd
