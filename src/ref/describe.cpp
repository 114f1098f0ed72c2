// What the table has, for people and for tests.

#include <utility>

#include "ref/table.h"

namespace farad::ref {

using base::Rank;
using detail::RefId;

Debug::Reference Table::describe(const RefId& id, Rank owner, std::string origin) const {
  const auto number = std::to_string(id.number & ((uint64_t{1} << counter_bits) - 1));
  return {services_.name_of(maker_of(id)) + "#" + number, services_.name_of(owner), std::move(origin)};
}

void Table::describe(Debug& debug) const {
  std::vector<std::shared_ptr<detail::RefHandle>> let_go;  // Not under the lock.
  base::Lock lock(mutex_);
  for (const auto& [id, owned] : owned_) {
    auto& reference =
        debug.owned.emplace_back(describe(id, self_, owned.origin.empty() ? "not made yet" : owned.origin));
    for (const auto& [peer, hold] : owned.holders) reference.holders.push_back(services_.name_of(peer.rank));
  }
  for (const auto& [id, weak] : borrowed_) {
    auto handle = weak.lock();
    if (handle) debug.held.push_back(describe(id, handle->owner, handle->origin));
    let_go.push_back(std::move(handle));
  }
  for (const auto& [number, lent] : lent_) {
    auto reference = describe(lent.handle->id, lent.handle->owner, lent.handle->origin);
    reference.holders.push_back(services_.name_of(lent.to.rank));
    debug.lent.push_back(std::move(reference));
  }
  debug.unsettled += asked_.size();
}

std::vector<Debug::Reference> Table::handles() const {
  std::vector<std::shared_ptr<detail::RefHandle>> let_go;
  std::vector<Debug::Reference> all;
  base::Lock lock(mutex_);
  for (const auto& [id, owned] : owned_) {
    if (owned.handles > 0) all.push_back(describe(id, self_, owned.origin));
  }
  for (const auto& [id, weak] : borrowed_) {
    auto handle = weak.lock();
    if (handle) all.push_back(describe(id, handle->owner, handle->origin));
    let_go.push_back(std::move(handle));
  }
  return all;
}

Table::Stats Table::stats() const {
  base::Lock lock(mutex_);
  size_t borrowed = 0;
  for (const auto& [id, handle] : borrowed_) borrowed += !handle.expired();
  return {owned_.size(), borrowed, lent_.size(), asked_.size()};
}

}  // namespace farad::ref
