#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/StringUtil.h>
#include <farad/detail/codec.h>
#include <farad/error.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// IValues, in which calls by name take their arguments and give their results: how they travel, and what they are to a
/// C++ function.
namespace farad::detail {

/// An IValue brings along what it is. None, Tensor (also an undefined one), bool, int (so also a dtype), float,
/// complex, str, Device, lists, tuples, and dicts whose keys are bool, int, float or str. A list or dict of one kind of
/// elements arrives typed by them, a mixed one typed as Any. Writing anything else throws Error, naming it.
template <>
struct Codec<c10::IValue> {
  static void write(Writer& out, const c10::IValue& value);
  static bool read(Reader& in, c10::IValue& value);
};

/// What it is, as schemas write it: "Tensor", "int[]", "(Tensor, int)".
std::string kind_of(const c10::IValue& value);

c10::TypePtr any_type();
c10::TypePtr list_type(c10::TypePtr element);
c10::IValue make_list(c10::TypePtr element, std::vector<c10::IValue> values);
c10::IValue make_tuple(std::vector<c10::IValue> values);
using ValuePairs = std::vector<std::pair<c10::IValue, c10::IValue>>;
c10::IValue make_dict(c10::TypePtr key, c10::TypePtr mapped, ValuePairs pairs);

/// Each gives true, or false and in `why` what was expected and what came. An int is taken for a float.
bool from_value(const c10::IValue& value, at::Tensor& out, std::string& why);
bool from_value(const c10::IValue& value, bool& out, std::string& why);
bool from_value(const c10::IValue& value, int64_t& out, std::string& why);
bool from_value(const c10::IValue& value, double& out, std::string& why);
bool from_value(const c10::IValue& value, std::string& out, std::string& why);
bool from_value(const c10::IValue& value, c10::Scalar& out, std::string& why);
c10::TypePtr type_for(const at::Tensor*);
c10::TypePtr type_for(const bool*);
c10::TypePtr type_for(const int64_t*);
c10::TypePtr type_for(const double*);
c10::TypePtr type_for(const std::string*);
c10::TypePtr type_for(const c10::Scalar*);

/// The elements of a list or a tuple.
bool elements_of(const c10::IValue& value, std::vector<c10::IValue>& out, std::string& why);
bool pairs_of(const c10::IValue& value, ValuePairs& out, std::string& why);

bool fail_value(std::string& why, std::string text);
bool fail_value_in(std::string& why, std::string_view where);

/// How a C++ type is given and taken as an IValue; type() is what a list of it has for elements.
template <class T>
struct AsValue;

template <class T, class... Others>
concept OneOf = (std::same_as<T, Others> || ...);

template <class T>
  requires OneOf<T, at::Tensor, bool, int64_t, double, std::string, c10::Scalar>
struct AsValue<T> {
  static c10::IValue to(const T& value) { return value; }
  static bool from(const c10::IValue& value, T& out, std::string& why) { return from_value(value, out, why); }
  static c10::TypePtr type() { return type_for(static_cast<const T*>(nullptr)); }
};

template <>
struct AsValue<c10::IValue> {
  static c10::IValue to(c10::IValue value) { return value; }
  static bool from(const c10::IValue& value, c10::IValue& out, std::string&) { return out = value, true; }
  static c10::TypePtr type() { return any_type(); }
};

template <std::integral T>
  requires(!OneOf<T, bool, int64_t>)
struct AsValue<T> {
  static c10::IValue to(T value) {
    if (value > 0 && static_cast<uint64_t>(value) > INT64_MAX) {
      throw Error("[rpc] " + std::to_string(value) + " is too large for an IValue");
    }
    return static_cast<int64_t>(value);
  }
  static bool from(const c10::IValue& value, T& out, std::string& why) {
    int64_t wide = 0;
    if (!from_value(value, wide, why)) return false;
    if (wide < 0 ? std::is_unsigned_v<T> || wide < static_cast<int64_t>(std::numeric_limits<T>::min())
                 : static_cast<uint64_t>(wide) > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      return fail_value(why, std::to_string(wide) + " does not fit");
    }
    out = static_cast<T>(wide);
    return true;
  }
  static c10::TypePtr type() { return AsValue<int64_t>::type(); }
};

template <class T>
  requires std::is_enum_v<T>
struct AsValue<T> {
  using Number = std::underlying_type_t<T>;
  static c10::IValue to(T value) { return AsValue<Number>::to(static_cast<Number>(value)); }
  static bool from(const c10::IValue& value, T& out, std::string& why) {
    Number number{};
    if (!AsValue<Number>::from(value, number, why)) return false;
    out = static_cast<T>(number);
    return true;
  }
  static c10::TypePtr type() { return AsValue<Number>::type(); }
};

template <>
struct AsValue<float> {
  static c10::IValue to(float value) { return static_cast<double>(value); }
  static bool from(const c10::IValue& value, float& out, std::string& why) {
    double wide = 0;
    if (!from_value(value, wide, why)) return false;
    if (std::isfinite(wide) && std::abs(wide) > std::numeric_limits<float>::max()) {
      return fail_value(why, c10::str(wide, " does not fit"));
    }
    out = static_cast<float>(wide);
    return true;
  }
  static c10::TypePtr type() { return AsValue<double>::type(); }
};

template <class T>
struct AsValue<std::optional<T>> {
  static c10::IValue to(const std::optional<T>& value) { return value ? AsValue<T>::to(*value) : c10::IValue(); }
  static bool from(const c10::IValue& value, std::optional<T>& out, std::string& why) {
    out.reset();
    return value.isNone() || AsValue<T>::from(value, out.emplace(), why);
  }
  static c10::TypePtr type() { return any_type(); }
};

template <class T>
struct AsValue<std::vector<T>> {
  static c10::IValue to(const std::vector<T>& value) {
    std::vector<c10::IValue> values;
    values.reserve(value.size());
    for (const T& each : value) values.push_back(AsValue<T>::to(each));
    return make_list(AsValue<T>::type(), std::move(values));
  }
  static bool from(const c10::IValue& value, std::vector<T>& out, std::string& why) {
    std::vector<c10::IValue> values;
    if (!elements_of(value, values, why)) return false;
    out.clear();
    out.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      T each{};
      if (!AsValue<T>::from(values[i], each, why)) return fail_value_in(why, "element " + std::to_string(i));
      out.push_back(std::move(each));
    }
    return true;
  }
  static c10::TypePtr type() { return list_type(AsValue<T>::type()); }
};

/// Whatever std::apply takes apart is a tuple: std::tuple, std::pair, std::array, and the fields of a struct.
template <class Tuple>
c10::IValue parts_to_value(const Tuple& parts) {
  return std::apply(
      [](const auto&... each) {
        return make_tuple(std::vector<c10::IValue>{AsValue<std::decay_t<decltype(each)>>::to(each)...});
      },
      parts);
}
template <class Tuple>
bool parts_from_value(const c10::IValue& value, Tuple& parts, std::string& why) {
  std::vector<c10::IValue> values;
  if (!elements_of(value, values, why)) return false;
  constexpr size_t count = std::tuple_size_v<Tuple>;
  if (values.size() != count) {
    return fail_value(why, "expected " + std::to_string(count) + " values, got " + std::to_string(values.size()));
  }
  size_t next = 0;
  const auto one = [&](auto& each) {
    const size_t i = next++;
    return AsValue<std::decay_t<decltype(each)>>::from(values[i], each, why) ||
           fail_value_in(why, "element " + std::to_string(i));
  };
  return std::apply([&](auto&... each) { return (one(each) && ...); }, parts);
}

template <class T>
struct TupleAsValue {
  static c10::IValue to(const T& value) { return parts_to_value(value); }
  static bool from(const c10::IValue& value, T& out, std::string& why) { return parts_from_value(value, out, why); }
  static c10::TypePtr type() { return any_type(); }
};
template <class... T>
struct AsValue<std::tuple<T...>> : TupleAsValue<std::tuple<T...>> {};
template <class A, class B>
struct AsValue<std::pair<A, B>> : TupleAsValue<std::pair<A, B>> {};
template <class T, size_t N>
struct AsValue<std::array<T, N>> : TupleAsValue<std::array<T, N>> {};

template <HasFields T>
struct AsValue<T> {
  static c10::IValue to(const T& value) { return parts_to_value(value.farad_fields()); }
  static bool from(const c10::IValue& value, T& out, std::string& why) {
    auto fields = out.farad_fields();
    return parts_from_value(value, fields, why);
  }
  static c10::TypePtr type() { return any_type(); }
};

template <class Map>
struct MapAsValue {
  using Key = AsValue<typename Map::key_type>;
  using Mapped = AsValue<typename Map::mapped_type>;
  static c10::IValue to(const Map& value) {
    ValuePairs pairs;
    for (const auto& [key, mapped] : value) pairs.emplace_back(Key::to(key), Mapped::to(mapped));
    return make_dict(Key::type(), Mapped::type(), std::move(pairs));
  }
  static bool from(const c10::IValue& value, Map& out, std::string& why) {
    ValuePairs pairs;
    if (!pairs_of(value, pairs, why)) return false;
    out.clear();
    for (const auto& [given_key, given_mapped] : pairs) {
      typename Map::key_type key{};
      typename Map::mapped_type mapped{};
      if (!Key::from(given_key, key, why)) return fail_value_in(why, "a key");
      if (!Mapped::from(given_mapped, mapped, why)) return fail_value_in(why, "a value");
      out.emplace(std::move(key), std::move(mapped));
    }
    return true;
  }
  static c10::TypePtr type() { return any_type(); }
};
template <class K, class V, class... Rest>
struct AsValue<std::map<K, V, Rest...>> : MapAsValue<std::map<K, V, Rest...>> {};
template <class K, class V, class... Rest>
struct AsValue<std::unordered_map<K, V, Rest...>> : MapAsValue<std::unordered_map<K, V, Rest...>> {};

/// Types that functions which are called by name may take and give.
template <class T>
concept HasValue = requires(const T& constant, const c10::IValue& value, T& out, std::string& why) {
  { AsValue<T>::to(constant) } -> std::same_as<c10::IValue>;
  { AsValue<T>::from(value, out, why) } -> std::same_as<bool>;
};

}  // namespace farad::detail
