#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/ids.h"
#include "base/ids.h"

namespace farad::autograd::explore {

/// Two 64-bit halves: states are told apart by this alone, and there are millions of them.
class Hash {
 public:
  void number(uint64_t value) {
    low_ = mix(low_ ^ value);
    high_ = mix(high_ + value * 0x9e3779b97f4a7c15U + 1);
  }
  std::pair<uint64_t, uint64_t> value() const { return {low_, high_}; }

 private:
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  uint64_t low_ = 0x243f6a8885a308d3U, high_ = 0x13198a2e03707344U;
};

template <class T>
concept HasFields = requires(const T& value) { value.fields(); };

template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
void add(Hash& hash, T value) {
  hash.number(static_cast<uint64_t>(value));
}
template <class Tag, class Rep>
void add(Hash& hash, base::Id<Tag, Rep> id) {
  hash.number(static_cast<uint64_t>(id.value));
}
inline void add(Hash& hash, PassId id) {
  hash.number(id.root.value);
  hash.number(id.number);
  hash.number(id.life);
}
inline void add(Hash& hash, const std::string& text) {
  hash.number(text.size());
  for (const char c : text) hash.number(static_cast<unsigned char>(c));
}

template <class T>
void add(Hash& hash, const std::vector<T>& range);
template <class T>
void add(Hash& hash, const std::set<T>& range);
template <class K, class V>
void add(Hash& hash, const std::map<K, V>& range);
template <class A, class B>
void add(Hash& hash, const std::pair<A, B>& both);
template <class... T>
void add(Hash& hash, const std::tuple<T...>& all);

template <HasFields T>
void add(Hash& hash, const T& value) {
  add(hash, value.fields());
}

namespace detail {
template <class Range>
void add_range(Hash& hash, const Range& range) {
  hash.number(range.size());
  for (const auto& one : range) add(hash, one);
}
}  // namespace detail

template <class T>
void add(Hash& hash, const std::vector<T>& range) {
  detail::add_range(hash, range);
}
template <class T>
void add(Hash& hash, const std::set<T>& range) {
  detail::add_range(hash, range);
}
template <class K, class V>
void add(Hash& hash, const std::map<K, V>& range) {
  detail::add_range(hash, range);
}
template <class A, class B>
void add(Hash& hash, const std::pair<A, B>& both) {
  add(hash, both.first);
  add(hash, both.second);
}
template <class... T>
void add(Hash& hash, const std::tuple<T...>& all) {
  std::apply([&](const auto&... one) { (add(hash, one), ...); }, all);
}

}  // namespace farad::autograd::explore
