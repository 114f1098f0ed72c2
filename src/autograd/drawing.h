#pragma once

#include <farad/fields.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/local_context.h"

namespace farad::autograd {

/// One worker's part of the graph of a context, as far as it hangs on what was sent, on losses, or on what is to be
/// drawn beside them: for people to look at.
struct Drawing {
  std::string worker;
  std::vector<std::string> nodes;                    ///< their names
  std::vector<std::pair<uint32_t, uint32_t>> links;  ///< from node to node, as gradients go
  std::vector<std::pair<uint64_t, uint32_t>> sends;  ///< pair and node
  std::vector<std::pair<uint64_t, uint32_t>> recvs;  ///< likewise
  std::vector<uint32_t> roots;                       ///< the nodes that made the losses
  std::vector<uint16_t> peers;                       ///< whom it was met with
  FARAD_FIELDS(worker, nodes, links, sends, recvs, roots, peers)
};

/// Any thread. `losses` and `beside`, which is drawn too, are tensors with history; throws if they lead to a call of
/// another context.
Drawing draw(const LocalContext& context, const std::vector<at::Tensor>& losses = {},
             const std::vector<at::Tensor>& beside = {});

/// All parts in the language of Graphviz: workers as clusters, and each pair as an edge between them, along which its
/// gradient goes. If there are roots, what no root leads to is grey, and the others count the gradients they would get.
std::string to_dot(ContextId context, const std::vector<Drawing>& parts);

}  // namespace farad::autograd
