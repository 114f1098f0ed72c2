#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "autograd/ids.h"

namespace farad::autograd {

/// The contexts that were the last to end here: a late message of one finds nothing, and does not make it again. How
/// many are remembered is bounded: of each place in the table, the last one that came there. One thread at a time.
class EndedContexts {
 public:
  static constexpr size_t most = 512;

  void add(ContextId id) { ids_[place_of(id)] = id; }
  bool contains(ContextId id) const { return ids_[place_of(id)] == id; }

 private:
  /// Numbers of one maker count up, so its last ones lie beside each other; those of different makers apart.
  static size_t place_of(ContextId id) {
    const auto bits = static_cast<uint64_t>(id.value);
    return (bits + (bits >> 48) * 67) % most;
  }

  std::array<ContextId, most> ids_{};  // No context has the id 0.
};

}  // namespace farad::autograd
