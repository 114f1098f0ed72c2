#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "wire/tensor_spec.h"
#include "wire/torch_compat.h"

namespace farad::wire {
namespace {

/// Straight from its parts: at::empty would cost a trip through the dispatcher, and more than the rest of a small
/// message.
at::Tensor tensor_over(at::DataPtr memory, uint64_t bytes, c10::ScalarType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(memory), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  strides.empty() ? impl->set_sizes_contiguous(sizes) : impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

/// Kernels take a bool for 0 or 1; what came may hold anything.
void make_bools(const at::DataPtr& memory, uint64_t bytes) {
  auto* data = static_cast<unsigned char*>(memory.get());
  std::transform(data, data + bytes, data, [](unsigned char byte) { return byte != 0; });
}

Complaint check_indices(const TensorSpec& spec, const int64_t* indices) {
  const auto at = [&](uint32_t dim, int64_t entry) { return indices[dim * spec.entries + entry]; };
  for (uint32_t dim = 0; dim < spec.sparse_dims; ++dim) {
    for (int64_t entry = 0; entry < spec.entries; ++entry) {
      if (at(dim, entry) < 0 || at(dim, entry) >= spec.sizes[dim]) {
        return "has the index " + std::to_string(at(dim, entry)) + " in a dimension of " +
               std::to_string(spec.sizes[dim]) + " elements";
      }
    }
  }
  if (!spec.coalesced) return {};
  for (int64_t entry = 1; entry < spec.entries; ++entry) {
    uint32_t dim = 0;
    while (dim < spec.sparse_dims && at(dim, entry - 1) == at(dim, entry)) ++dim;
    if (dim == spec.sparse_dims || at(dim, entry - 1) > at(dim, entry)) {
      return "claims to be coalesced, but its entries are not in order";
    }
  }
  return {};
}

char* copy_elements(const char* from, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t bytes, char* to) {
  if (sizes.empty()) {
    std::memcpy(to, from, bytes);
    return to + bytes;
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    to = copy_elements(from, sizes.slice(1), strides.slice(1), bytes, to);
    from += strides[0] * static_cast<int64_t>(bytes);
  }
  return to;
}

/// Up to this many bytes are copied element by element: contiguous() goes through the dispatcher several times, which
/// costs more than the rest of a small message. The gradient of a sum is one, for example: a number, expanded.
constexpr size_t small_copy = 1024;

bool is_small_copy(const at::Tensor& tensor) {
  return tensor.nbytes() <= small_copy && tensor.device().is_cpu() && tensor.layout() == c10::kStrided &&
         !tensor.is_conj() && !tensor.is_neg() && tensor.has_storage();
}

at::Tensor copy_small(const at::Tensor& tensor) {
  const size_t bytes = tensor.nbytes();
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (!memory) throw std::bad_alloc();
  at::DataPtr owned(memory, memory, &std::free, at::Device(at::kCPU));
  copy_elements(compat::const_data(tensor), tensor.sizes(), tensor.strides(), tensor.itemsize(),
                static_cast<char*>(memory));
  return tensor_over(std::move(owned), bytes, tensor.scalar_type(), tensor.sizes(), {});
}

}  // namespace

at::Tensor as_dense_block(const at::Tensor& tensor) {
  if (lies_as_a_block(tensor)) return tensor;
  at::NoGradGuard no_history;
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());
  if (is_small_copy(tensor)) return copy_small(tensor);
  return tensor.resolve_conj().resolve_neg().contiguous();
}

Complaint build(const TensorSpec& spec, at::DataPtr indices, at::DataPtr values, at::Tensor& tensor) {
  tensor.reset();
  if (spec.layout == TensorSpec::Layout::Undefined) return {};

  // Whoever takes the message in may be waiting under InferenceMode; the message need not be for them.
  std::optional<c10::InferenceMode> plain;
  if (c10::InferenceMode::is_enabled()) plain.emplace(false);

  if (spec.dtype == c10::ScalarType::Bool) make_bools(values, spec.value_bytes);
  if (spec.layout == TensorSpec::Layout::Dense) {
    tensor = tensor_over(std::move(values), spec.value_bytes, spec.dtype, spec.sizes, spec.strides);
  } else {
    if (auto complaint = check_indices(spec, static_cast<const int64_t*>(indices.get()))) return complaint;
    c10::SmallVector<int64_t, 5> value_sizes{spec.entries};
    value_sizes.append(spec.sizes.begin() + spec.sparse_dims, spec.sizes.end());
    auto index_tensor = tensor_over(std::move(indices), spec.index_bytes, c10::ScalarType::Long,
                                    {static_cast<int64_t>(spec.sparse_dims), spec.entries}, {});
    auto value_tensor = tensor_over(std::move(values), spec.value_bytes, spec.dtype, value_sizes, {});
    at::NoGradGuard no_history;
    tensor = at::_sparse_coo_tensor_unsafe(index_tensor, value_tensor, spec.sizes,
                                           value_tensor.options().layout(c10::kSparse));
    tensor._coalesced_(spec.coalesced);
  }
  if (spec.requires_grad) tensor.set_requires_grad(true);
  return {};
}

}  // namespace farad::wire
