#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

#include "wire/torch_compat.h"

/// What differs between the versions of libtorch, as far as this layer is concerned.
namespace farad::autograd::compat {

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

}  // namespace farad::autograd::compat
