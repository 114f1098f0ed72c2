#include "collectives/reduced.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/stream_copy.h"
#include "collectives/reduction.h"

namespace farad::collectives {

Reduced::Reduced(at::Tensor memory, size_t stream_from)
    : whole_(std::move(memory)), streams_(whole_.nbytes() >= stream_from) {}

at::Tensor Reduced::reduce(const at::Tensor& to, const std::vector<at::Tensor>& tensors, Op op) {
  if (!streams_) {
    auto out = to;
    reduce_into(out, tensors, op);
    return out;
  }
  if (!room_.defined() || room_.numel() < to.numel()) room_ = at::empty({to.numel()}, to.options());
  auto out = room_.narrow(0, 0, to.numel());
  reduce_into(out, tensors, op);
  put(to, out);
  return out;
}

void Reduced::put(const at::Tensor& to, const at::Tensor& from) const {
  if (streams_ && from.is_contiguous()) {
    base::stream_copy(to.data_ptr(), from.data_ptr(), to.nbytes());
  } else {
    to.copy_(from);
  }
}

}  // namespace farad::collectives
