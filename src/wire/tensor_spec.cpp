#include "wire/tensor_spec.h"

#include <algorithm>
#include <limits>

#include "wire/bytes.h"
#include "wire/dtype.h"
#include "wire/torch_compat.h"

namespace farad::wire {
namespace {

enum Flag : uint8_t { requires_grad_flag = 1, strides_flag = 2, coalesced_flag = 4, lent_flag = 8, cuda_flag = 16 };
constexpr uint8_t known_flags = requires_grad_flag | strides_flag | coalesced_flag | lent_flag | cuda_flag;
constexpr size_t fixed_bytes = 4;    // dtype, layout, flags, number of dimensions
constexpr size_t sparse_bytes = 12;  // sparse dimensions, entries
constexpr size_t device_bytes = 1;   // which CUDA device

/// As new. Assigning a new one would make it first and then move it, for each small tensor of each small message.
void clear(TensorSpec& spec) {
  spec.layout = TensorSpec::Layout::Undefined;
  spec.dtype = c10::ScalarType::Undefined;
  spec.requires_grad = spec.coalesced = spec.lent = false;
  spec.device = c10::kCPU;
  spec.sparse_dims = 0;
  spec.entries = 0;
  spec.sizes.clear();
  spec.strides.clear();
  spec.index_bytes = spec.value_bytes = 0;
}

bool multiply(int64_t& product, int64_t factor) { return !__builtin_mul_overflow(product, factor, &product); }

std::string number(int64_t value) { return std::to_string(value); }

/// Whether the strides visit every element of a block exactly once. Dimensions of one element are visited once
/// whatever their stride; it is only kept sane.
bool fill_a_block(const TensorSpec& spec, int64_t elements) {
  c10::SmallVector<size_t, 5> order;
  for (size_t i = 0; i < spec.sizes.size(); ++i) {
    if (spec.sizes[i] != 1) {
      order.push_back(i);
    } else if (spec.strides[i] < 0 || spec.strides[i] > elements) {
      return false;
    }
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return spec.strides[a] < spec.strides[b]; });
  int64_t expected = 1;
  for (const size_t i : order) {
    if (spec.strides[i] != expected) return false;
    expected *= spec.sizes[i];  // Cannot overflow: ends at `elements`.
  }
  return true;
}

/// Fills in what follows from the description, and refuses what libtorch could not compute with. Both sides ask, so
/// that what one sends the other takes.
Complaint measure(TensorSpec& spec) {
  if (spec.requires_grad && !c10::isFloatingType(spec.dtype) && !c10::isComplexType(spec.dtype)) {
    return "requires a gradient, which " + std::string(c10::toString(spec.dtype)) + " cannot";
  }
  const auto item = static_cast<int64_t>(c10::elementSize(spec.dtype));
  // libtorch multiplies sizes without zeros when it computes strides, and may do so in bytes.
  int64_t volume = item, elements = 1;
  for (const int64_t size : spec.sizes) {
    if (size < 0) return "has a dimension of " + number(size) + " elements";
    if (!multiply(volume, std::max<int64_t>(size, 1))) return "is larger than 64 bits can count";
    elements *= size;
  }
  if (spec.layout == TensorSpec::Layout::Dense) {
    spec.value_bytes = static_cast<uint64_t>(elements * item);
    if (!spec.strides.empty() && (elements == 0 || !fill_a_block(spec, elements))) {
      return "has strides that overlap or leave gaps";
    }
    return {};
  }

  if (spec.entries < 0) return "has " + number(spec.entries) + " entries";
  if (spec.sparse_dims > spec.sizes.size()) {
    return "has " + number(spec.sparse_dims) + " sparse dimensions of " + std::to_string(spec.sizes.size());
  }
  int64_t index_bytes = sizeof(int64_t), value_bytes = item;
  bool fits = multiply(index_bytes, spec.sparse_dims) && multiply(index_bytes, spec.entries) &&
              multiply(value_bytes, spec.entries);
  for (size_t i = spec.sparse_dims; i < spec.sizes.size(); ++i) fits = fits && multiply(value_bytes, spec.sizes[i]);
  int64_t payload = 0;
  if (!fits || __builtin_add_overflow(index_bytes, value_bytes, &payload)) return "is larger than 64 bits can count";
  // Otherwise a few bytes could claim entries without end.
  if (spec.entries > payload) return "has " + number(spec.entries) + " entries without data: coalesce() it first";
  spec.index_bytes = static_cast<uint64_t>(index_bytes);
  spec.value_bytes = static_cast<uint64_t>(value_bytes);
  return {};
}

Complaint cannot_travel(const at::Tensor& tensor) {
  const auto dtype = [&] { return " (" + std::string(c10::toString(tensor.scalar_type())) + ")"; };
  if (tensor.is_nested()) return "is nested: send its parts, or to_padded_tensor()";
  if (c10::isQIntType(tensor.scalar_type())) return "is quantised" + dtype() + ": call dequantize() first";
  if (tensor.is_meta()) return "is a meta tensor, it has no data: make it on the CPU first";
  if (!tensor.device().is_cpu())
    return "is on " + tensor.device().str() +
           ", and tensors travel only from the CPU and from CUDA devices: call cpu() first";
  if (tensor.layout() != c10::kStrided && tensor.layout() != c10::kSparse) {
    return std::string("has the layout ") +
           (tensor.layout() == c10::kMkldnn ? "mkldnn" : "of a compressed sparse tensor") + ": call to_dense()" +
           (tensor.layout() == c10::kMkldnn ? "" : " or to_sparse()") + " first";
  }
  if (dtype_to_wire(tensor.scalar_type()) == 0)
    return "has a dtype that does not travel" + dtype() + ": call to() first";
  if (tensor.layout() == c10::kStrided && !tensor.has_storage()) return "has no memory of its own: send a clone()";
  return {};
}

void describe_sparse(const at::Tensor& tensor, TensorSpec& spec) {
  spec.layout = TensorSpec::Layout::SparseCoo;
  spec.sparse_dims = static_cast<uint32_t>(tensor.sparse_dim());
  spec.entries = tensor._nnz();
  spec.coalesced = tensor.is_coalesced();
}

void describe_dense(const at::Tensor& tensor, TensorSpec& spec) {
  spec.layout = TensorSpec::Layout::Dense;
  if (tensor.is_contiguous() || !lies_as_a_block(tensor)) return;
  const auto strides = tensor.strides();
  for (size_t i = 0; i < strides.size(); ++i) {
    // libtorch does not care about the stride of one element, and leaves anything in it.
    const bool free = spec.sizes[i] == 1;
    spec.strides.push_back(free ? std::clamp<int64_t>(strides[i], 0, tensor.numel()) : strides[i]);
  }
}

}  // namespace

bool lies_as_a_block(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

Complaint describe(const at::Tensor& tensor, const Limits& limits, TensorSpec& spec) {
  clear(spec);
  if (!tensor.defined()) return {};
  if (auto complaint = cannot_travel(tensor)) return complaint;
  const auto sizes = tensor.sizes();
  if (sizes.size() > std::min(limits.dims, 255u)) {
    return "has " + std::to_string(sizes.size()) + " dimensions, the limit is " + std::to_string(limits.dims);
  }
  spec.dtype = tensor.scalar_type();
  spec.requires_grad = tensor.requires_grad();
  spec.sizes.assign(sizes.begin(), sizes.end());
  tensor.layout() == c10::kSparse ? describe_sparse(tensor, spec) : describe_dense(tensor, spec);
  return measure(spec);
}

size_t encoded_bytes(const TensorSpec& spec) {
  return fixed_bytes + sizeof(int64_t) * (spec.sizes.size() + spec.strides.size()) +
         (spec.layout == TensorSpec::Layout::SparseCoo ? sparse_bytes : 0) + (spec.device.is_cpu() ? 0 : device_bytes);
}

char* write(const TensorSpec& spec, char* to) {
  const uint8_t flags = (spec.requires_grad ? requires_grad_flag : 0) | (spec.strides.empty() ? 0 : strides_flag) |
                        (spec.coalesced ? coalesced_flag : 0) | (spec.lent ? lent_flag : 0) |
                        (spec.device.is_cpu() ? 0 : cuda_flag);
  to = put<uint8_t>(to, dtype_to_wire(spec.dtype));
  to = put<uint8_t>(to, static_cast<uint8_t>(spec.layout));
  to = put<uint8_t>(to, flags);
  to = put<uint8_t>(to, static_cast<uint8_t>(spec.sizes.size()));
  for (const int64_t size : spec.sizes) to = put(to, size);
  for (const int64_t stride : spec.strides) to = put(to, stride);
  if (spec.layout == TensorSpec::Layout::SparseCoo) {
    to = put<uint32_t>(to, spec.sparse_dims);
    to = put<int64_t>(to, spec.entries);
  }
  if (!spec.device.is_cpu()) to = put<uint8_t>(to, static_cast<uint8_t>(spec.device.index()));
  return to;
}

Complaint read(std::string_view& from, const Limits& limits, TensorSpec& spec) {
  constexpr const char* cut_off = "has a description that is cut off";
  clear(spec);
  if (from.size() < fixed_bytes) return cut_off;
  const char* next = from.data();
  const auto dtype = take<uint8_t>(next);
  const auto layout = take<uint8_t>(next);
  const auto flags = take<uint8_t>(next);
  const auto dims = take<uint8_t>(next);

  if (layout > static_cast<uint8_t>(TensorSpec::Layout::SparseCoo)) return "has the unknown layout " + number(layout);
  spec.layout = static_cast<TensorSpec::Layout>(layout);
  const bool sparse = spec.layout == TensorSpec::Layout::SparseCoo;
  const bool defined = spec.layout != TensorSpec::Layout::Undefined;
  const uint8_t allowed = !defined ? 0 : known_flags & ~(sparse ? strides_flag | lent_flag : coalesced_flag);
  if (flags & ~allowed) return "has flags " + number(flags) + ", which mean nothing for it";
  if (dims > limits.dims) return "has " + number(dims) + " dimensions, the limit is " + number(limits.dims);
  if (!defined && (dtype != 0 || dims != 0)) return "is undefined, but has a dtype or sizes";
  const bool strided = flags & strides_flag;
  const bool cuda = flags & cuda_flag;
  const size_t bytes = fixed_bytes + sizeof(int64_t) * dims * (strided ? 2 : 1) + (sparse ? sparse_bytes : 0) +
                       (cuda ? device_bytes : 0);
  if (from.size() < bytes) return cut_off;

  for (size_t i = 0; i < dims; ++i) spec.sizes.push_back(take<int64_t>(next));
  for (size_t i = 0; strided && i < dims; ++i) spec.strides.push_back(take<int64_t>(next));
  if (sparse) {
    spec.sparse_dims = take<uint32_t>(next);
    spec.entries = take<int64_t>(next);
  }
  if (cuda) {
    const auto index = take<uint8_t>(next);
    if (index > std::numeric_limits<int8_t>::max()) return "is of the device cuda:" + number(index);
    spec.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  from.remove_prefix(bytes);
  if (!defined) return {};

  spec.requires_grad = flags & requires_grad_flag;
  spec.coalesced = flags & coalesced_flag;
  spec.lent = flags & lent_flag;
  spec.dtype = dtype_from_wire(dtype);
  if (spec.dtype == c10::ScalarType::Undefined) {
    const char* name = dtype_name(dtype);
    return name ? "is " + std::string(name) + ", which libtorch " TORCH_VERSION " does not have"
                : "has the unknown dtype " + number(dtype);
  }
  return measure(spec);
}

}  // namespace farad::wire
