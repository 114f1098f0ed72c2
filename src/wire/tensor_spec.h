#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/lending.h"
#include "wire/limits.h"

namespace farad::wire {

/// What the table of a frame says about one tensor: all but its data.
struct TensorSpec {
  enum class Layout : uint8_t { Undefined = 0, Dense = 1, SparseCoo = 2 };

  Layout layout = Layout::Undefined;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool requires_grad = false;
  bool coalesced = false;          // sparse: indices are sorted and none comes twice
  bool lent = false;               // dense: the payload holds a handle to the data (see lending.h)
  c10::Device device = c10::kCPU;  // where it belongs; its data travel from host to host in any case
  uint32_t sparse_dims = 0;        // sparse: the first dimensions, those that are indexed
  int64_t entries = 0;             // sparse: how many
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;  // empty: row-major

  // Follow from the above.
  uint64_t index_bytes = 0;  // sparse: int64 [sparse_dims, entries], before the values
  uint64_t value_bytes = 0;

  uint64_t payload_bytes() const { return lent ? Handle::bytes : index_bytes + value_bytes; }
};

/// Nothing, or why not: a clause whose subject is the tensor ("is quantised (QInt8): call dequantize() first").
using Complaint = std::optional<std::string>;

/// Describes `tensor` as it will travel; complains if it cannot, with what to do about it.
[[nodiscard]] Complaint describe(const at::Tensor& tensor, const Limits& limits, TensorSpec& spec);

/// The bytes write() needs.
size_t encoded_bytes(const TensorSpec& spec);
/// Returns the place behind what it wrote.
char* write(const TensorSpec& spec, char* to);
/// Takes one description off the front of `from`. Complains if it is none, is beyond the limits, is of a dtype that
/// this libtorch does not have, or describes memory that overlaps or has gaps.
[[nodiscard]] Complaint read(std::string_view& from, const Limits& limits, TensorSpec& spec);

/// Whether a dense tensor's memory holds its elements and nothing else, in any order of dimensions.
bool lies_as_a_block(const at::Tensor& tensor);
/// The tensor itself if it lies as a block; otherwise its values in one, row-major. Only for dense tensors that
/// describe() took.
at::Tensor as_dense_block(const at::Tensor& tensor);

/// A tensor of that description which owns `values` (and `indices`, if sparse); a leaf. Complains if the data
/// contradict the description: indices out of range, or out of order in what claims to be coalesced.
[[nodiscard]] Complaint build(const TensorSpec& spec, at::DataPtr indices, at::DataPtr values, at::Tensor& tensor);

}  // namespace farad::wire
