#include "wire/dtype.h"

#include <array>

#include "wire/torch_compat.h"

namespace farad::wire {
namespace {

struct Entry {
  const char* name;
  c10::ScalarType type;
};

constexpr auto absent = c10::ScalarType::Undefined;

#if FARAD_TORCH_SINCE(2, 7)
#define FARAD_SINCE_2_7(type) c10::ScalarType::type
#else
#define FARAD_SINCE_2_7(type) absent
#endif
#if FARAD_TORCH_SINCE(2, 3)
#define FARAD_SINCE_2_3(type) c10::ScalarType::type
#else
#define FARAD_SINCE_2_3(type) absent
#endif

// The place in this table is the number on the wire: append, never insert.
constexpr std::array<Entry, 22> table{{
    {nullptr, absent},
    {"uint8", c10::ScalarType::Byte},
    {"int8", c10::ScalarType::Char},
    {"int16", c10::ScalarType::Short},
    {"int32", c10::ScalarType::Int},
    {"int64", c10::ScalarType::Long},
    {"float16", c10::ScalarType::Half},
    {"float32", c10::ScalarType::Float},
    {"float64", c10::ScalarType::Double},
    {"complex32", c10::ScalarType::ComplexHalf},
    {"complex64", c10::ScalarType::ComplexFloat},
    {"complex128", c10::ScalarType::ComplexDouble},
    {"bool", c10::ScalarType::Bool},
    {"bfloat16", c10::ScalarType::BFloat16},
    {"float8_e5m2", FARAD_SINCE_2_3(Float8_e5m2)},
    {"float8_e4m3fn", FARAD_SINCE_2_3(Float8_e4m3fn)},
    {"float8_e5m2fnuz", FARAD_SINCE_2_3(Float8_e5m2fnuz)},
    {"float8_e4m3fnuz", FARAD_SINCE_2_3(Float8_e4m3fnuz)},
    {"float8_e8m0fnu", FARAD_SINCE_2_7(Float8_e8m0fnu)},
    {"uint16", FARAD_SINCE_2_3(UInt16)},
    {"uint32", FARAD_SINCE_2_3(UInt32)},
    {"uint64", FARAD_SINCE_2_3(UInt64)},
}};

// The other direction, by libtorch's own number.
constexpr auto wire_numbers = [] {
  std::array<uint8_t, 128> numbers{};
  for (size_t i = 1; i < table.size(); ++i) {
    if (table[i].type != absent) numbers[static_cast<size_t>(table[i].type)] = static_cast<uint8_t>(i);
  }
  return numbers;
}();

}  // namespace

uint8_t dtype_to_wire(c10::ScalarType type) {
  const auto place = static_cast<size_t>(static_cast<int8_t>(type));
  return place < wire_numbers.size() ? wire_numbers[place] : 0;
}

c10::ScalarType dtype_from_wire(uint8_t number) { return number < table.size() ? table[number].type : absent; }

const char* dtype_name(uint8_t number) { return number < table.size() ? table[number].name : nullptr; }

}  // namespace farad::wire
