#include "rpc/pending.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farad::rpc {

uint64_t PendingCalls::add(PendingCall call) {
  base::Lock lock(mutex_);
  const uint64_t id = next_++;
  calls_.emplace(id, std::move(call));
  return id;
}

std::optional<PendingCall> PendingCalls::sent(uint64_t id, base::Incarnation incarnation) {
  base::Lock lock(mutex_);
  const auto found = calls_.find(id);
  if (found == calls_.end()) return {};  // The reply was quicker.
  found->second.incarnation = incarnation;
  if (found->second.deadline != base::never) deadlines_.emplace(found->second.deadline, id);
  if (!lost_.contains({found->second.to, incarnation})) return {};
  return take_locked(id);
}

std::optional<PendingCall> PendingCalls::take_locked(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return {};
  auto call = std::move(found->second);
  calls_.erase(found);
  if (call.deadline != base::never) deadlines_.erase({call.deadline, id});
  return call;
}

std::optional<PendingCall> PendingCalls::take(uint64_t id) {
  base::Lock lock(mutex_);
  return take_locked(id);
}

std::vector<PendingCall> PendingCalls::take_all_of(net::Peer lost) {
  base::Lock lock(mutex_);
  lost_.insert(lost);
  std::vector<uint64_t> ids;
  for (const auto& [id, call] : calls_) {
    if (call.to == lost.rank && call.incarnation == lost.incarnation) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());  // In the order they were made, so that a simulation replays.
  std::vector<PendingCall> taken;
  for (uint64_t id : ids) taken.push_back(*take_locked(id));
  return taken;
}

std::vector<PendingCall> PendingCalls::take_all() {
  base::Lock lock(mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [id, call] : calls_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  std::vector<PendingCall> taken;
  for (uint64_t id : ids) taken.push_back(*take_locked(id));
  return taken;
}

std::optional<PendingCall> PendingCalls::give_up_locked(uint64_t id) {
  auto call = take_locked(id);
  if (call && call->keep) {
    given_up_.emplace(id, std::pair(net::Peer{call->to, call->incarnation}, std::move(call->keep)));
  }
  return call;
}

std::optional<PendingCall> PendingCalls::give_up(uint64_t id) {
  base::Lock lock(mutex_);
  return give_up_locked(id);
}

std::vector<std::pair<uint64_t, PendingCall>> PendingCalls::give_up_expired(base::TimePoint now,
                                                                            base::TimePoint& next) {
  base::Lock lock(mutex_);
  std::vector<std::pair<uint64_t, PendingCall>> taken;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t id = deadlines_.begin()->second;
    taken.emplace_back(id, *give_up_locked(id));
  }
  next = deadlines_.empty() ? base::never : deadlines_.begin()->first;
  return taken;
}

PendingCalls::Kept PendingCalls::let_go(uint64_t id) {
  base::Lock lock(mutex_);
  const auto found = given_up_.find(id);
  if (found == given_up_.end()) return {};
  auto kept = std::move(found->second.second);
  given_up_.erase(found);
  return kept;
}

std::vector<PendingCalls::Kept> PendingCalls::let_go_of(net::Peer lost) {
  base::Lock lock(mutex_);
  std::vector<Kept> kept;
  for (auto each = given_up_.begin(); each != given_up_.end();) {
    const bool gone = each->second.first == lost;
    if (gone) kept.push_back(std::move(each->second.second));
    each = gone ? given_up_.erase(each) : std::next(each);
  }
  return kept;
}

std::vector<PendingCalls::Kept> PendingCalls::let_go_all() {
  base::Lock lock(mutex_);
  std::vector<Kept> kept;
  for (auto& [id, each] : std::exchange(given_up_, {})) kept.push_back(std::move(each.second));
  return kept;
}

size_t PendingCalls::given_up() const {
  base::Lock lock(mutex_);
  return given_up_.size();
}

void PendingCalls::each(const std::function<void(const PendingCall&)>& look) const {
  base::Lock lock(mutex_);
  std::map<uint64_t, const PendingCall*> in_order;
  for (const auto& [id, call] : calls_) in_order.emplace(id, &call);
  for (const auto& [id, call] : in_order) look(*call);
}

size_t PendingCalls::size() const {
  base::Lock lock(mutex_);
  return calls_.size();
}

}  // namespace farad::rpc
