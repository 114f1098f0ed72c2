#include "wire/hand_over.h"

#include <ATen/core/grad_mode.h>

#include "wire/torch_compat.h"

namespace farad::wire {

bool may_hand_over(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         // Memory that nobody frees (from_blob) belongs to somebody who may still write to it.
         tensor.storage().data_ptr().get_context() != nullptr && !compat::is_copy_on_write(tensor.storage());
}

at::Tensor snapshot(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  at::NoGradGuard no_history;
  auto copy = tensor.detach().clone();
  copy.set_requires_grad(tensor.requires_grad());
  return copy;
}

}  // namespace farad::wire
