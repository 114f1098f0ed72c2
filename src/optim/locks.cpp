#include "optim/locks.h"

#include <algorithm>
#include <utility>

namespace farad::optim {
namespace {

bool share_any(const ParameterLocks::Parameters& one, const ParameterLocks::Parameters& other) {
  auto a = one.begin(), b = other.begin();
  while (a != one.end() && b != other.end() && *a != *b) *a < *b ? ++a : ++b;
  return a != one.end() && b != other.end();
}

void tell(const std::vector<ParameterLocks::Granted>& granted) {
  for (const auto& each : granted) each(true);
}

}  // namespace

bool ParameterLocks::is_free(const Parameters& parameters, std::list<Claim>::const_iterator end) const {
  return std::none_of(claims_.begin(), end,
                      [&](const Claim& claim) { return share_any(claim.parameters, parameters); });
}

bool ParameterLocks::try_lock(StepId step, const Parameters& parameters) {
  base::Lock lock(mutex_);
  if (!is_free(parameters, claims_.end())) return false;
  claims_.push_back({step, parameters, nullptr, true});
  return true;
}

void ParameterLocks::lock(StepId step, Parameters parameters, Granted granted) {
  base::Lock lock(mutex_);
  if (closed_) return;
  claims_.push_back({step, std::move(parameters), std::move(granted)});
  const auto next = grant();
  lock.unlock();
  tell(next);
}

void ParameterLocks::give_up(StepId step) {
  base::Lock lock(mutex_);
  const auto found = std::find_if(claims_.begin(), claims_.end(),
                                  [&](const Claim& claim) { return claim.step == step && !claim.held; });
  if (found == claims_.end()) return;
  const auto gave_up = std::move(found->granted);
  claims_.erase(found);
  const auto next = grant();  // It may have stood between others.
  lock.unlock();
  gave_up(false);
  tell(next);
}

void ParameterLocks::unlock(StepId step) {
  base::Lock lock(mutex_);
  claims_.remove_if([&](const Claim& claim) { return claim.step == step && claim.held; });
  const auto next = grant();
  lock.unlock();
  tell(next);
}

void ParameterLocks::close() {
  std::list<Claim> dropped;  // Not under the lock: their ends tell others.
  base::Lock lock(mutex_);
  closed_ = true;
  for (auto next = claims_.begin(); next != claims_.end();) {
    const auto claim = next++;
    if (!claim->held) dropped.splice(dropped.end(), claims_, claim);
  }
  lock.unlock();
}

std::vector<ParameterLocks::Granted> ParameterLocks::grant() {
  std::vector<Granted> granted;
  for (auto claim = claims_.begin(); claim != claims_.end(); ++claim) {
    if (claim->held || !is_free(claim->parameters, claim)) continue;
    claim->held = true;
    granted.push_back(std::move(claim->granted));
  }
  return granted;
}

}  // namespace farad::optim
