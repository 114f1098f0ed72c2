#include <farad/detail/by_name.h>

#include <cstdlib>

#include "fuzz/fuzz_targets.h"
#include "fuzz/limits.h"
#include "wire/value.h"

namespace farad::fuzz {

void fuzz_ivalue(Input input) {
  const auto limits = wire::value_limits(small_limits());
  const std::vector<char> body(input.begin(), input.end());
  const std::vector<at::Tensor> tensors(2);
  detail::Reader in(body, tensors, limits);
  std::vector<c10::IValue> values;
  if (!detail::read(in, values)) return;
  // What was read must come back from being written; compared as bytes, since not every float equals itself.
  const auto once = detail::pack_values(values, limits);
  detail::Reader again(once.body, once.tensors, limits);
  std::vector<c10::IValue> same;
  if (!detail::read(again, same)) std::abort();
  if (detail::pack_values(same, limits).body != once.body) std::abort();
}

}  // namespace farad::fuzz
