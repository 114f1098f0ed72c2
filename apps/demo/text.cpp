#include "demo/text.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <farad/error.h>

#include <algorithm>
#include <random>
#include <set>

namespace farad::demo {

Text::Text(std::string_view text) {
  const std::set<char> different(text.begin(), text.end());
  alphabet_.assign(different.begin(), different.end());
  characters_ = at::tensor(encode(text));
}

Batch Text::batch(uint64_t seed, int64_t step, int64_t size, int64_t context) const {
  TORCH_CHECK(length() > context, "[text] ", length(), " characters are too few for passages of ", context);
  std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(step)};
  std::mt19937_64 random(seeds);
  std::vector<at::Tensor> inputs, targets;
  for (int64_t i = 0; i < size; i++) {
    // Not by a distribution of the standard library, each of which is another one elsewhere.
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(length() - context));
    inputs.push_back(characters_.slice(0, at, at + context));
    targets.push_back(characters_.slice(0, at + 1, at + context + 1));
  }
  return {at::stack(inputs), at::stack(targets)};
}

std::vector<int64_t> Text::encode(std::string_view characters) const {
  std::vector<int64_t> numbers;
  numbers.reserve(characters.size());
  for (const char c : characters) {
    const auto found = std::lower_bound(alphabet_.begin(), alphabet_.end(), c);
    if (found == alphabet_.end() || *found != c)
      throw Error("[text] the character '" + std::string(1, c) + "' is not in the text");
    numbers.push_back(found - alphabet_.begin());
  }
  return numbers;
}

}  // namespace farad::demo
