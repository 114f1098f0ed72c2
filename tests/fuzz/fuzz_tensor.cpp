#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz_targets.h"
#include "fuzz/limits.h"
#include "wire/buffer_pool.h"
#include "wire/tensor_spec.h"

namespace farad::fuzz {
namespace {

at::DataPtr fill(wire::BufferPool& pool, uint64_t bytes, std::string_view& from) {
  auto memory = pool.allocate(bytes);
  auto* to = static_cast<char*>(memory.get());
  for (uint64_t i = 0; i < bytes; ++i) to[i] = i < from.size() ? from[i] : '\0';
  from.remove_prefix(std::min<size_t>(bytes, from.size()));
  return memory;
}

}  // namespace

void fuzz_tensor(Input input) {
  const auto limits = small_limits();
  const auto pool = wire::BufferPool::make(1 << 20);
  std::string_view rest(reinterpret_cast<const char*>(input.data()), input.size());

  wire::TensorSpec spec;
  if (read(rest, limits, spec)) return;
  if (spec.index_bytes > limits.payload_bytes || spec.value_bytes > limits.payload_bytes) return;
  auto indices = fill(*pool, spec.index_bytes, rest);
  auto values = fill(*pool, spec.value_bytes, rest);
  at::Tensor tensor;
  if (build(spec, std::move(indices), std::move(values), tensor)) return;

  // Whatever was accepted can be sent on as it was described, and computed with.
  wire::TensorSpec again;
  if (describe(tensor, limits, again)) std::abort();
  if (again.index_bytes != spec.index_bytes || again.value_bytes != spec.value_bytes) std::abort();
  if (!tensor.defined()) return;
  try {
    tensor.is_sparse() ? (void)tensor.coalesce() : (void)tensor.contiguous();
  } catch (const c10::Error&) {
    // libtorch has not every kernel for every dtype.
  }
}

}  // namespace farad::fuzz
