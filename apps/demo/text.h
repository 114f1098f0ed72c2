#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farad::demo {

/// Inputs of (size, context) characters, and for each the one that follows.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// A text as numbers: each different character has one.
class Text {
 public:
  explicit Text(std::string_view text);

  int64_t length() const { return characters_.size(0); }
  int64_t vocabulary() const { return static_cast<int64_t>(alphabet_.size()); }

  /// Passages at random places. The seed and the number of the step decide, and nothing else: whoever goes on in the
  /// middle gets what he would have got.
  Batch batch(uint64_t seed, int64_t step, int64_t size, int64_t context) const;

  /// Throws Error if a character is not in the text.
  std::vector<int64_t> encode(std::string_view characters) const;
  char decode(int64_t number) const { return alphabet_.at(static_cast<size_t>(number)); }

 private:
  std::string alphabet_;  // sorted
  at::Tensor characters_;
};

/// The text that comes with the demo.
std::string_view essay();

}  // namespace farad::demo
