#include <cstdlib>

#include "fuzz/fuzz_targets.h"
#include "fuzz/limits.h"
#include "wire/value.h"

namespace farad::fuzz {
namespace {

enum class Choice : int16_t { One = 1 };

struct Tree {
  std::string name;
  std::optional<double> weight;
  std::vector<Tree> children;
  FARAD_FIELDS(name, weight, children)
};

struct Everything {
  bool flag = false;
  int8_t small = 0;
  uint64_t large = 0;
  float single = 0;
  Choice choice = Choice::One;
  std::vector<char> bytes;
  std::array<std::pair<int, uint16_t>, 2> pairs;
  std::map<std::string, std::tuple<int64_t, std::vector<bool>>> map;
  std::unordered_map<int, std::optional<std::optional<int>>> hashed;
  at::Tensor tensor;
  c10::Scalar scalar;
  FARAD_FIELDS(flag, small, large, single, choice, bytes, pairs, map, hashed, tensor, scalar)
};

/// What was read must come back from being written; floating point is left out of the comparison by comparing bytes.
template <class T>
void read_as(const wire::Message& message) {
  T value{};
  if (!wire::decode(message, value, small_limits()).ok()) return;
  wire::Message once, twice;
  wire::encode(value, once, small_limits());
  T again{};
  if (!wire::decode(once, again, small_limits()).ok()) std::abort();
  wire::encode(again, twice, small_limits());
  if (once.body != twice.body) std::abort();
}

}  // namespace

void fuzz_value(Input input) {
  if (input.empty()) return;
  wire::Message message;
  message.body.assign(input.begin() + 1, input.end());
  message.tensors.resize(2);
  switch (input[0] % 6) {
    case 0:
      return read_as<Tree>(message);
    case 1:
      return read_as<Everything>(message);
    case 2:
      return read_as<std::vector<c10::Scalar>>(message);
    case 3:
      return read_as<std::vector<at::Tensor>>(message);
    case 4:
      return read_as<std::map<std::string, std::vector<float>>>(message);
    default:
      return read_as<std::vector<std::optional<std::string>>>(message);
  }
}

}  // namespace farad::fuzz
