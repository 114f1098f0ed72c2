#include "net/local/as_value.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <string>

#include "wire/hand_over.h"
#include "wire/tensor_spec.h"

namespace farad::net {
namespace {

at::Tensor as_value(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_sparse()) return wire::snapshot(tensor);
  at::NoGradGuard no_history;
  const bool ours_alone = wire::may_hand_over(tensor);  // Asked first: every further handle makes it false.
  at::Tensor value = wire::as_dense_block(tensor);
  if (value.is_same(tensor)) {
    const bool whole = tensor.storage().nbytes() == static_cast<size_t>(tensor.numel()) * tensor.element_size();
    if (!ours_alone || !whole) return wire::snapshot(tensor);
  }
  value = value.detach();
  value.set_requires_grad(tensor.requires_grad());
  return value;
}

}  // namespace

base::Status as_values(const wire::Message& message, std::vector<at::Tensor>& values) try {
  values.clear();
  values.reserve(message.tensors.size());
  for (const auto& tensor : message.tensors) values.push_back(as_value(tensor));
  return {};
} catch (...) {  // libtorch, while it copied
  return {base::Code::Invalid, "[net] message kind " + std::to_string(message.kind) +
                                   " cannot be sent: " + base::status_of(std::current_exception()).message()};
}

}  // namespace farad::net
