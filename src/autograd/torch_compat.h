#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "wire/torch_compat.h"

/// What differs between the versions of libtorch, as far as this layer is concerned.
namespace farad::autograd::compat {

using torch::autograd::AccumulateGrad;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// What an edge of the graph holds its node by.
using NodePtr = decltype(torch::autograd::Edge::function);

/// The same for a node of a known class, and how one is made. Either way the end of a long chain of nodes is a loop,
/// where plain pointers would recurse until the stack is full.
#if FARAD_TORCH_SINCE(2, 13)
template <class T>
using Ptr = c10::intrusive_ptr<T>;

template <class T, class... A>
Ptr<T> make_node(A&&... arguments) {
  return c10::make_intrusive<T>(std::forward<A>(arguments)...);
}
#else
template <class T>
using Ptr = std::shared_ptr<T>;

template <class T, class... A>
Ptr<T> make_node(A&&... arguments) {
  return Ptr<T>(new T(std::forward<A>(arguments)...), torch::autograd::deleteNode);
}
#endif

/// The dtype that a gradient must have; none where any will do.
template <class Metadata>
std::optional<at::ScalarType> gradient_dtype(const Metadata& metadata) {
  if constexpr (requires { metadata.grad_dtype(); }) {
    return metadata.grad_dtype();
  } else {
    return c10::typeMetaToScalarType(metadata.dtype());
  }
}

/// Whether it stands for an output that nobody can have used, of which nothing is known.
template <class Metadata>
bool is_placeholder([[maybe_unused]] const Metadata& metadata) {
  if constexpr (requires { metadata.was_default_constructed(); }) {
    return metadata.was_default_constructed();
  } else {
    return false;
  }
}

/// Hooks of tensors: those a user registers on one, and what keeps the gradient of one that retains it.
///
/// Since 2.0 they come first, on whatever a pass reaches; then come the node's own pre hooks, if it is called. Before,
/// a tensor's hooks were pre hooks of its function, and those of a leaf hung on the leaf.
inline bool has_tensor_hooks(Node& node) {
#if FARAD_TORCH_SINCE(2, 0)
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
#else
  return !node.pre_hooks().empty();
#endif
}

inline void call_tensor_hooks(Node& node, variable_list& gradients) {
#if FARAD_TORCH_SINCE(2, 0)
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
#else
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
#endif
}

#if !FARAD_TORCH_SINCE(2, 0)
inline bool has_tensor_hooks(AccumulateGrad& leaf) {
  return !leaf.pre_hooks().empty() || !torch::autograd::impl::hooks(leaf.variable).empty();
}

inline void call_tensor_hooks(AccumulateGrad& leaf, variable_list& gradients) {
  for (const auto& hook : leaf.pre_hooks()) gradients = (*hook)(gradients);
  if (gradients.empty() || !gradients[0].defined()) return;
  for (const auto& hook : torch::autograd::impl::hooks(leaf.variable)) gradients[0] = (*hook)({gradients[0]})[0];
}
#endif

inline void call_pre_hooks([[maybe_unused]] Node& node, [[maybe_unused]] variable_list& gradients) {
#if FARAD_TORCH_SINCE(2, 0)
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
#endif
}

/// Those that run once a leaf has its gradient.
inline void call_post_accumulate_hooks([[maybe_unused]] AccumulateGrad& leaf) {
#if FARAD_TORCH_SINCE(2, 1)
  if (auto& hook = leaf.tensor_post_acc_grad_hooks()) (*hook)(leaf.variable);
#endif
}

/// Keeps the warnings of this thread, while it lives, to itself.
class Warnings final : public c10::WarningHandler {
 public:
  const std::string& text() const { return text_; }

#if FARAD_TORCH_SINCE(2, 0)
  void process(const c10::Warning& warning) override { text_ += warning.msg(); }

 private:
  std::string text_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
#else
  void process(const c10::SourceLocation&, const std::string& message, bool) override { text_ += message; }

 private:
  std::string text_;
  c10::Warning::WarningHandlerGuard guard_{this};
#endif
};

}  // namespace farad::autograd::compat
