#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace farad::base {

/// A number that cannot be taken for another kind of number.
template <class Tag, class Rep>
struct Id {
  Rep value{};

  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  auto operator<=>(const Id&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << +id.value; }
};

/// A worker of the group: its rank. Sixteen bits, because a context's id carries it in its upper sixteen.
using Rank = Id<struct RankTag, uint16_t>;
/// One life of the connection between two workers. A broken connection ends it; the next one has a larger number here.
using Incarnation = Id<struct IncarnationTag, uint64_t>;

}  // namespace farad::base

template <class Tag, class Rep>
struct std::hash<farad::base::Id<Tag, Rep>> {
  size_t operator()(const farad::base::Id<Tag, Rep>& id) const { return std::hash<Rep>()(id.value); }
};
