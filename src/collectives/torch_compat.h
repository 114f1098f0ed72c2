#pragma once

#include "autograd/torch_compat.h"

/// What differs between the versions of libtorch, as far as this layer is concerned.
namespace farad::collectives::compat {

/// What edges hold that node by.
inline autograd::compat::NodePtr pointer_to(torch::autograd::Node& node) {
#if FARAD_TORCH_SINCE(2, 13)
  return node.getptr();
#else
  return node.shared_from_this();
#endif
}

}  // namespace farad::collectives::compat
