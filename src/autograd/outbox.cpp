#include "autograd/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farad::autograd {
namespace {

/// Those that are wanted, out of all; both stay in their order.
template <class T, class Wanted>
std::vector<T> extract(std::vector<T>& all, const Wanted& wanted) {
  std::vector<T> extracted;
  std::erase_if(all, [&](T& one) {
    if (!wanted(one)) return false;
    extracted.push_back(std::move(one));
    return true;
  });
  return extracted;
}

}  // namespace

bool Outbox::keep(base::Rank to, Letter letter) {
  const bool commit = letter.message.kind == PassKind::Commit;
  base::Lock lock(mutex_);
  auto& parcels = commit ? commits_ : parcels_;
  const auto fits = [&](const Parcel& parcel) {
    return parcel.to == to && (commit || parcel.letters.front().context == letter.context);
  };
  auto place = std::find_if(parcels.begin(), parcels.end(), fits);
  if (place == parcels.end()) {
    place = parcels.insert(place, Parcel{to, {}});
    place->letters.reserve(2);
  }
  place->letters.push_back(std::move(letter));
  if (commit) has_commits_.store(true, std::memory_order_relaxed);
  return !std::exchange(watched_, true);
}

std::vector<Outbox::Parcel> Outbox::take(const LocalContext& context) {
  base::Lock lock(mutex_);
  return extract(parcels_, [&](const Parcel& parcel) { return parcel.letters.front().context.get() == &context; });
}

std::vector<Outbox::Parcel> Outbox::take_if_many(base::Rank to) {
  base::Lock lock(mutex_);
  auto taken =
      extract(commits_, [&](const Parcel& parcel) { return parcel.to == to && parcel.letters.size() >= many; });
  has_commits_.store(!commits_.empty(), std::memory_order_relaxed);
  return taken;
}

std::vector<Outbox::Parcel> Outbox::take_commits(const LocalContext& context, base::Rank to) {
  // What this thread has kept it sees; of what others keep just now, nobody knows whether it came before.
  if (!has_commits_.load(std::memory_order_relaxed)) return {};
  base::Lock lock(mutex_);
  const auto there =
      std::find_if(commits_.begin(), commits_.end(), [&](const auto& parcel) { return parcel.to == to; });
  if (there == commits_.end()) return {};
  auto letters = extract(there->letters, [&](const Letter& letter) { return letter.context.get() == &context; });
  if (there->letters.empty()) commits_.erase(there);
  has_commits_.store(!commits_.empty(), std::memory_order_relaxed);
  std::vector<Parcel> taken;
  if (!letters.empty()) taken.push_back({to, std::move(letters)});
  return taken;
}

std::vector<Outbox::Parcel> Outbox::take_all() {
  base::Lock lock(mutex_);
  watched_ = false;
  has_commits_.store(false, std::memory_order_relaxed);
  auto all = std::exchange(parcels_, {});
  std::move(commits_.begin(), commits_.end(), std::back_inserter(all));
  commits_.clear();
  return all;
}

}  // namespace farad::autograd
