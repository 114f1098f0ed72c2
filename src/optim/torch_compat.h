#pragma once

#include <ATen/core/TensorBody.h>

#include <sstream>
#include <type_traits>

/// What differs between the versions of libtorch, as far as this layer is concerned.
namespace farad::optim::compat {

/// What an optimizer finds its state of a parameter by: the parameter's address, which older versions print.
template <class States>
auto state_key(const at::Tensor& parameter) {
  using Key = typename std::decay_t<States>::key_type;
  if constexpr (std::is_pointer_v<Key>) {
    return static_cast<Key>(parameter.unsafeGetTensorImpl());
  } else {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  }
}

}  // namespace farad::optim::compat
