#pragma once

#include <farad/detail/value.h>
#include <farad/fields.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

/// How each type that travels is written and read. Whoever has another one specialises Codec.
namespace farad::detail {

template <class T>
struct Codec;

template <class T>
void write(Writer& out, const T& value) {
  Codec<T>::write(out, value);
}
template <class T>
[[nodiscard]] bool read(Reader& in, T& value) {
  return Codec<T>::read(in, value);
}

template <class T>
concept HasFields = requires(T& value, const T& constant) {
  value.farad_fields();
  constant.farad_fields();
};
template <class T>
concept Byte = std::same_as<T, char> || std::same_as<T, signed char> || std::same_as<T, unsigned char> ||
               std::same_as<T, std::byte>;

template <>
struct Codec<bool> {
  static void write(Writer& out, bool value) { out.boolean(value); }
  static bool read(Reader& in, bool& value) { return in.boolean(value); }
};

template <std::integral T>
struct Codec<T> {
  static void write(Writer& out, T value) {
    if constexpr (std::is_signed_v<T>) {
      out.integer(value);
    } else {
      out.natural(value);
    }
  }
  static bool read(Reader& in, T& value) {
    using Range = std::numeric_limits<T>;
    if constexpr (std::is_signed_v<T>) {
      int64_t wide = 0;
      if (!in.integer(wide, Range::min(), Range::max())) return false;
      value = static_cast<T>(wide);
    } else {
      uint64_t wide = 0;
      if (!in.natural(wide, Range::max())) return false;
      value = static_cast<T>(wide);
    }
    return true;
  }
};

template <class T>
  requires std::is_enum_v<T>
struct Codec<T> {
  using Number = std::underlying_type_t<T>;
  static void write(Writer& out, T value) { Codec<Number>::write(out, static_cast<Number>(value)); }
  static bool read(Reader& in, T& value) {
    Number number{};
    if (!Codec<Number>::read(in, number)) return false;
    value = static_cast<T>(number);
    return true;
  }
};

template <>
struct Codec<float> {
  static void write(Writer& out, float value) { out.single(value); }
  static bool read(Reader& in, float& value) { return in.single(value); }
};
template <>
struct Codec<double> {
  static void write(Writer& out, double value) { out.real(value); }
  static bool read(Reader& in, double& value) { return in.real(value); }
};
/// Two doubles hold the mantissa of any long double that there is; the exponent, which they cannot, goes beside them.
template <>
struct Codec<long double> {
  static void write(Writer& out, long double value) {
    int exponent = 0;
    const long double mantissa = std::isfinite(value) ? std::frexp(value, &exponent) : value;
    const auto high = static_cast<double>(mantissa);
    const auto low = std::isfinite(value) ? static_cast<double>(mantissa - high) : 0.0;
    out.begin_array(3);
    out.real(high);
    out.real(low);
    out.integer(exponent);
    out.end();
  }
  static bool read(Reader& in, long double& value) {
    using Range = std::numeric_limits<int>;
    double high = 0, low = 0;
    int64_t exponent = 0;
    if (!in.begin_array_of(3, "a long double") || !in.real(high) || !in.real(low) ||
        !in.integer(exponent, Range::min(), Range::max())) {
      return false;
    }
    in.end();
    const long double mantissa = low == 0 ? high : static_cast<long double>(high) + low;  // A zero keeps its sign.
    value = std::ldexp(mantissa, static_cast<int>(exponent));
    return true;
  }
};
template <>
struct Codec<std::string> {
  static void write(Writer& out, const std::string& value) { out.text(value); }
  static bool read(Reader& in, std::string& value) { return in.text(value); }
};
template <>
struct Codec<at::Tensor> {
  static void write(Writer& out, const at::Tensor& value) { out.tensor(value); }
  static bool read(Reader& in, at::Tensor& value) { return in.tensor(value); }
};
template <>
struct Codec<c10::Scalar> {
  static void write(Writer& out, const c10::Scalar& value) { out.scalar(value); }
  static bool read(Reader& in, c10::Scalar& value) { return in.scalar(value); }
};

template <class T>
struct Codec<std::vector<T>> {
  static void write(Writer& out, const std::vector<T>& value) {
    out.begin_array(value.size());
    for (const T& each : value) detail::write<T>(out, each);
    out.end();
  }
  static bool read(Reader& in, std::vector<T>& value) {
    size_t count = 0;
    if (!in.begin_array(count)) return false;
    value.clear();
    // A count is only a claim: beyond a few, memory is taken as elements arrive.
    value.reserve(std::min<size_t>(count, 1024));
    for (size_t i = 0; i < count; ++i) {
      T each{};
      if (!detail::read(in, each)) return in.fail_in("element " + std::to_string(i));
      value.push_back(std::move(each));
    }
    in.end();
    return true;
  }
};

template <Byte T>
struct Codec<std::vector<T>> {
  static void write(Writer& out, const std::vector<T>& value) { out.bytes(value.data(), value.size()); }
  static bool read(Reader& in, std::vector<T>& value) {
    std::string_view bytes;
    if (!in.bytes(bytes)) return false;
    value.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
    return true;
  }
};

template <class T, size_t N>
struct Codec<std::array<T, N>> {
  static void write(Writer& out, const std::array<T, N>& value) {
    out.begin_array(N);
    for (const T& each : value) detail::write(out, each);
    out.end();
  }
  static bool read(Reader& in, std::array<T, N>& value) {
    if (!in.begin_array_of(N, "an array")) return false;
    for (size_t i = 0; i < N; ++i) {
      if (!detail::read(in, value[i])) return in.fail_in("element " + std::to_string(i));
    }
    in.end();
    return true;
  }
};

/// An empty one is an empty array, so that optionals of optionals stay distinct.
template <class T>
struct Codec<std::optional<T>> {
  static void write(Writer& out, const std::optional<T>& value) {
    out.begin_array(value ? 1 : 0);
    if (value) detail::write(out, *value);
    out.end();
  }
  static bool read(Reader& in, std::optional<T>& value) {
    size_t count = 0;
    if (!in.begin_array(count)) return false;
    if (count > 1) return in.fail("expected an optional, got " + std::to_string(count) + " values");
    value.reset();
    if (count == 1 && !detail::read(in, value.emplace())) return false;
    in.end();
    return true;
  }
};

template <class Map>
struct MapCodec {
  static void write(Writer& out, const Map& value) {
    out.begin_map(value.size());
    for (const auto& [key, mapped] : value) {
      detail::write(out, key);
      detail::write(out, mapped);
    }
    out.end();
  }
  static bool read(Reader& in, Map& value) {
    size_t count = 0;
    if (!in.begin_map(count)) return false;
    value.clear();
    for (size_t i = 0; i < count; ++i) {
      typename Map::key_type key{};
      typename Map::mapped_type mapped{};
      if (!detail::read(in, key)) return in.fail_in("key " + std::to_string(i));
      if (!detail::read(in, mapped)) return in.fail_in("value " + std::to_string(i));
      if (!value.emplace(std::move(key), std::move(mapped)).second) return in.fail("a key comes twice in a map");
    }
    in.end();
    return true;
  }
};
template <class K, class V, class... Rest>
struct Codec<std::map<K, V, Rest...>> : MapCodec<std::map<K, V, Rest...>> {};
template <class K, class V, class... Rest>
struct Codec<std::unordered_map<K, V, Rest...>> : MapCodec<std::unordered_map<K, V, Rest...>> {};

/// The name of the `index`-th of "a, b, c"; only errors ask.
inline std::string_view nth_name(std::string_view names, size_t index) {
  for (; index > 0; --index) names.remove_prefix(std::min(names.size(), names.find(',') + 1));
  names.remove_prefix(std::min(names.size(), names.find_first_not_of(' ')));
  return names.substr(0, names.find(','));
}

template <class Tuple>
void write_each(Writer& out, const Tuple& values) {
  out.begin_array(std::tuple_size_v<Tuple>);
  std::apply([&](const auto&... each) { (detail::write(out, each), ...); }, values);
  out.end();
}
/// `where` names the part with that number.
template <class Tuple, class Where>
bool read_each(Reader& in, Tuple& values, std::string_view what, Where where) {
  if (!in.begin_array_of(std::tuple_size_v<Tuple>, what)) return false;
  size_t index = 0;
  const auto read_one = [&](auto& each) {
    if (!detail::read(in, each)) return in.fail_in(where(index));
    ++index;
    return true;
  };
  if (!std::apply([&](auto&... each) { return (read_one(each) && ...); }, values)) return false;
  in.end();
  return true;
}

template <class... T>
struct Codec<std::tuple<T...>> {
  static void write(Writer& out, const std::tuple<T...>& value) { write_each(out, value); }
  static bool read(Reader& in, std::tuple<T...>& value) {
    return read_each(in, value, "a tuple", [](size_t i) { return "element " + std::to_string(i); });
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>> {
  static void write(Writer& out, const std::pair<A, B>& value) { write_each(out, std::tie(value.first, value.second)); }
  static bool read(Reader& in, std::pair<A, B>& value) {
    auto both = std::tie(value.first, value.second);
    return read_each(in, both, "a pair", [](size_t i) { return "element " + std::to_string(i); });
  }
};

template <HasFields T>
struct Codec<T> {
  static void write(Writer& out, const T& value) { write_each(out, value.farad_fields()); }
  static bool read(Reader& in, T& value) {
    auto fields = value.farad_fields();
    return read_each(in, fields, "a struct",
                     [](size_t i) { return "field " + std::string(nth_name(T::farad_field_names(), i)); });
  }
};

/// Types that can be arguments and results.
template <class T>
concept Travels = requires(Writer& out, Reader& in, const T& constant, T& value) {
  Codec<T>::write(out, constant);
  { Codec<T>::read(in, value) } -> std::same_as<bool>;
};

}  // namespace farad::detail
