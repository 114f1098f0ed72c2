#include <ATen/ops/empty.h>

#include <cstdlib>
#include <cstring>

#include "fuzz/fuzz_targets.h"
#include "optim/safetensors.h"

namespace farad::fuzz {

void fuzz_safetensors(Input input) {
  const auto bytes = at::empty({static_cast<int64_t>(input.size())}, at::kByte);
  if (!input.empty()) std::memcpy(bytes.data_ptr(), input.data(), input.size());
  optim::NamedTensors tensors;
  if (!optim::take_apart("input", bytes, tensors).ok()) {
    if (!tensors.empty()) std::abort();
    return;
  }
  // What was taken lies in the input and fills it, so it cannot be more; and every byte of it may be read.
  size_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    total += tensor.nbytes();
    if (total > input.size()) std::abort();
    std::string copy(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    if (copy.size() != tensor.nbytes()) std::abort();
  }
}

}  // namespace farad::fuzz
