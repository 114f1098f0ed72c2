#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include "base/ids.h"

namespace farad::autograd {

/// A forward pass with its backward passes: the rank of the worker that made it (16 bits), and that one's counter.
using ContextId = base::Id<struct ContextTag, int64_t>;

/// One message of the forward pass that carried tensors in need of gradients: the rank of its sender (16 bits), and
/// that one's counter.
using PairId = base::Id<struct PairTag, uint64_t>;

/// One `backward` in a context: the worker it was called at, and that one's counter.
struct PassId {
  base::Rank root;
  uint64_t number = 0;
  /// Which time that worker counts in this context: it begins again where it was restarted, or has given the context up
  /// and met it again, and others remember what it had before.
  uint64_t life = 0;
  auto operator<=>(const PassId&) const = default;
};

}  // namespace farad::autograd

template <>
struct std::hash<farad::autograd::PassId> {
  size_t operator()(const farad::autograd::PassId& id) const {
    return std::hash<uint64_t>()((id.number << 16 | id.root.value) ^ id.life * 0x9e3779b97f4a7c15);
  }
};
