#include "ref/table.h"

#include <farad/error.h>

#include <tuple>
#include <utility>

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::detail {

RefHandle::~RefHandle() { table->released(*this); }

}  // namespace farad::detail

namespace farad::ref {

using base::Rank;
using detail::RefHandle;
using detail::RefId;
using rpc::Loan;

namespace {

/// The number of a reference tells who made it, so that its making can be given up when that one is lost.
constexpr int counter_bits = 48;
Rank maker_of(const RefId& id) { return Rank(static_cast<uint16_t>(id.number >> counter_bits)); }

/// The hold that the maker of a reference has on it from the start. Those that an owner makes are even and those that
/// others ask for odd; this one is neither's.
uint64_t makers_hold(const RefId& id) { return id.number | uint64_t{1} << 63; }

}  // namespace

Table::Table(Rank self, uint64_t birth, Services services)
    : self_(self), birth_(birth), services_(std::move(services)) {}

wire::Message Table::encode(const Note& note) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(rpc::Kind::Reference);
  wire::encode(std::make_tuple(note.what, note.id.maker, note.id.number, note.number), message);
  return message;
}

void Table::send(Outbox out) {
  for (auto& [to, note] : out) services_.post(to, encode(note));
}

/// A value's end is foreign code, perhaps long: not under our lock, and not where messages are taken in.
void Table::dispose(std::vector<std::shared_ptr<void>> garbage) {
  if (garbage.empty()) return;
  services_.later([garbage = std::move(garbage)]() mutable { garbage.clear(); });
}

// --- Values that live here ---

RefId Table::new_id() { return {birth_, uint64_t{self_.value} << counter_bits | ++numbers_}; }

std::shared_ptr<RefHandle> Table::own(std::shared_ptr<void> value, std::string origin) {
  base::Lock lock(mutex_);
  const RefId id = new_id();
  auto& owned = owned_[id];
  owned.origin = std::move(origin);
  owned.expected = true;
  owned.value = std::move(value);
  owned.ready = true;
  return handle_of_own(id);
}

std::shared_ptr<RefHandle> Table::handle_of_own(const RefId& id) {
  auto& owned = owned_[id];
  ++owned.handles;
  auto handle = std::make_shared<RefHandle>(shared_from_this(), id, self_, 0, owned.origin);
  handle->confirmed = true;
  return handle;
}

void Table::expect(Rank maker, const RefId& id, const std::string& function) {
  base::Lock lock(mutex_);
  auto& owned = owned_[id];
  owned.expected = true;
  owned.origin = "remote of \"" + function + "\" by " + services_.name_of(maker);
  if (maker == self_) return;  // Has a handle.
  const Holder holder{maker, makers_hold(id)};
  if (early_drops_.erase({id, holder}) == 0) owned.holders.insert(holder);
}

void Table::keep(const RefId& id, std::shared_ptr<void> value) { settle(id, std::move(value), nullptr); }
void Table::fail(const RefId& id, std::exception_ptr error) { settle(id, nullptr, std::move(error)); }

void Table::settle(const RefId& id, std::shared_ptr<void> value, std::exception_ptr error) {
  std::vector<Then> waiting;
  std::vector<std::shared_ptr<void>> garbage;
  {
    base::Lock lock(mutex_);
    const auto found = owned_.find(id);
    if (found == owned_.end() || found->second.ready) return;
    auto& owned = found->second;
    owned.value = value;
    owned.error = error;
    owned.ready = true;
    waiting.swap(owned.waiting);
    free_if_unheld(id, garbage);
  }
  for (auto& then : waiting) services_.later([then = std::move(then), value, error] { then(value, error); });
  dispose(std::move(garbage));
}

void Table::when_ready(const RefId& id, Then then) {
  std::shared_ptr<void> value;
  std::exception_ptr error;
  {
    base::Lock lock(mutex_);
    auto& owned = owned_[id];
    if (!owned.ready) {
      owned.waiting.push_back(std::move(then));
      return;
    }
    value = owned.value;
    error = owned.error;
  }
  then(std::move(value), std::move(error));
}

void Table::free_if_unheld(const RefId& id, std::vector<std::shared_ptr<void>>& garbage) {
  const auto found = owned_.find(id);
  if (found == owned_.end()) return;
  auto& owned = found->second;
  // One that is being made is freed when it is made: whoever waits for it already gets it.
  if (!owned.ready || owned.handles > 0 || !owned.holders.empty()) return;
  garbage.push_back(std::move(owned.value));
  owned_.erase(found);
}

// --- Shares of values that live elsewhere ---

std::shared_ptr<RefHandle> Table::begin(Rank owner, std::string_view function) {
  std::string origin = "remote of \"" + std::string(function) + "\"";
  base::Lock lock(mutex_);
  const RefId id = new_id();
  if (owner == self_) {
    owned_[id].origin = std::move(origin);
    return handle_of_own(id);
  }
  auto handle = std::make_shared<RefHandle>(shared_from_this(), id, owner, makers_hold(id), std::move(origin));
  borrowed_[id] = handle;
  return handle;
}

void Table::confirm(const std::shared_ptr<RefHandle>& handle) {
  Outbox out;
  Handles let_go;
  {
    base::Lock lock(mutex_);
    handle->confirmed = true;
    noted({handle->owner, handle->hold}, out, let_go);  // It may have come back to us by others meanwhile.
  }
  send(std::move(out));
}

std::vector<Loan> Table::lend(Rank to, const detail::References& references) {
  std::vector<Loan> loans;
  base::Lock lock(mutex_);
  for (const auto& handle : references) {
    Loan loan{handle->id, handle->owner, 0, 0};
    if (handle->owner == self_) {
      // Holds that the owner makes are even, those that others ask for odd, so that they never meet.
      loan.hold = ++numbers_ * 2;
      owned_[handle->id].holders.insert({to, loan.hold});  // Also to ourselves: it holds while it is on its way.
    } else {
      loan.lend = ++numbers_;
      lent_[loan.lend] = {handle, to};
    }
    loans.push_back(loan);
  }
  return loans;
}

void Table::take_back(Rank to, const std::vector<Loan>& loans) {
  Handles let_go;
  std::vector<std::shared_ptr<void>> garbage;
  {
    base::Lock lock(mutex_);
    for (const auto& loan : loans) {
      if (const auto lent = lent_.find(loan.lend); lent != lent_.end()) {
        let_go.push_back(std::move(lent->second.handle));
        lent_.erase(lent);
      } else if (const auto owned = owned_.find(loan.id); owned != owned_.end()) {
        owned->second.holders.erase({to, loan.hold});
        free_if_unheld(loan.id, garbage);
      }
    }
  }
  let_go.clear();
  dispose(std::move(garbage));
}

detail::References Table::receive(Rank from, const std::vector<Loan>& loans, const std::string& function) {
  detail::References references;
  Outbox out;
  {
    base::Lock lock(mutex_);
    for (const auto& loan : loans) references.push_back(take(from, loan, function, out));
  }
  send(std::move(out));
  return references;
}

std::shared_ptr<RefHandle> Table::take(Rank from, const Loan& loan, const std::string& function, Outbox& out) {
  const auto returned = [&] {
    if (loan.lend != 0) out.emplace_back(from, Note{What::Returned, loan.id, loan.lend});
  };
  if (loan.owner == self_) {
    returned();
    auto handle = handle_of_own(loan.id);
    if (loan.hold != 0) owned_[loan.id].holders.erase({self_, loan.hold});
    return handle;
  }
  const auto origin = [&] { return "lent by " + services_.name_of(from) + " with \"" + function + "\""; };
  std::shared_ptr<RefHandle> present;
  if (const auto found = borrowed_.find(loan.id); found != borrowed_.end()) present = found->second.lock();
  if (loan.hold != 0) {  // The owner itself lends.
    if (present) {
      out.emplace_back(loan.owner, Note{What::Drop, loan.id, loan.hold});  // One hold is enough.
      return present;
    }
    auto handle = std::make_shared<RefHandle>(shared_from_this(), loan.id, loan.owner, loan.hold, origin());
    handle->confirmed = true;
    borrowed_[loan.id] = handle;
    return handle;
  }
  if (present) {
    const auto asked = asked_.find({loan.owner, present->hold});
    if (asked == asked_.end() && present->confirmed) {
      returned();
    } else {
      auto& entry = asked_[{loan.owner, present->hold}];
      entry.handle = present;
      entry.owner = loan.owner;
      entry.lenders.emplace_back(from, loan.lend);
    }
    return present;
  }
  auto handle = std::make_shared<RefHandle>(shared_from_this(), loan.id, loan.owner, ++numbers_ * 2 + 1, origin());
  borrowed_[loan.id] = handle;
  asked_[{loan.owner, handle->hold}] = {handle, {{from, loan.lend}}, loan.owner};
  out.emplace_back(loan.owner, Note{What::Hold, loan.id, handle->hold});
  return handle;
}

void Table::released(const RefHandle& handle) {
  Outbox out;
  std::vector<std::shared_ptr<void>> garbage;
  {
    base::Lock lock(mutex_);
    if (closed_) return;
    if (handle.owner == self_) {
      const auto found = owned_.find(handle.id);
      if (found == owned_.end()) return;
      --found->second.handles;
      free_if_unheld(handle.id, garbage);
    } else {
      if (const auto found = borrowed_.find(handle.id); found != borrowed_.end() && found->second.expired()) {
        borrowed_.erase(found);
      }
      if (!handle.lost) out.emplace_back(handle.owner, Note{What::Drop, handle.id, handle.hold});
    }
  }
  send(std::move(out));
  dispose(std::move(garbage));
}

void Table::noted(const Holder& key, Outbox& out, Handles& let_go) {
  const auto asked = asked_.find(key);
  if (asked == asked_.end()) return;
  if (auto handle = asked->second.handle.lock()) {
    handle->confirmed = true;
    let_go.push_back(std::move(handle));
  }
  for (const auto& [lender, number] : asked->second.lenders) {
    out.emplace_back(lender, Note{What::Returned, {}, number});
  }
  asked_.erase(asked);
}

void Table::on_message(Rank from, const wire::Message& message) {
  std::tuple<What, uint64_t, uint64_t, uint64_t> parts;
  if (!wire::decode(message, parts).ok()) return;
  const Note note{std::get<0>(parts), {std::get<1>(parts), std::get<2>(parts)}, std::get<3>(parts)};
  Outbox out;
  std::vector<std::shared_ptr<void>> garbage;
  Handles let_go;
  {
    base::Lock lock(mutex_);
    const Holder holder{from, note.number};
    switch (note.what) {
      case What::Hold:
        if (early_drops_.erase({note.id, holder}) == 0) owned_[note.id].holders.insert(holder);
        out.emplace_back(from, Note{What::Noted, note.id, note.number});
        break;
      case What::Drop:
        if (const auto found = owned_.find(note.id); found != owned_.end() && found->second.holders.erase(holder) > 0) {
          free_if_unheld(note.id, garbage);
        } else {
          early_drops_.insert({note.id, holder});
        }
        break;
      case What::Noted:
        noted(holder, out, let_go);
        break;
      case What::Returned:
        if (const auto found = lent_.find(note.number); found != lent_.end() && found->second.to == from) {
          let_go.push_back(std::move(found->second.handle));
          lent_.erase(found);
        }
        break;
    }
  }
  let_go.clear();
  send(std::move(out));
  dispose(std::move(garbage));
}

void Table::on_lost(Rank rank) {
  Outbox out;
  std::vector<std::shared_ptr<void>> garbage;
  Handles let_go;
  std::vector<std::pair<Then, std::exception_ptr>> failed;
  {
    base::Lock lock(mutex_);
    std::vector<RefId> ids;
    for (auto& [id, owned] : owned_) {
      if (std::erase_if(owned.holders, [&](const Holder& holder) { return holder.first == rank; }) > 0)
        ids.push_back(id);
    }
    for (const auto& id : ids) free_if_unheld(id, garbage);
    // What it was to make, and we have only heard of, will not be made any more.
    for (auto& [id, owned] : owned_) {
      if (owned.expected || maker_of(id) != rank || owned.ready) continue;
      owned.ready = true;
      owned.error = std::make_exception_ptr(
          PeerLost("[ref] " + services_.name_of(rank) + " was lost before it had this value made"));
      for (auto& then : owned.waiting) failed.emplace_back(std::move(then), owned.error);
      owned.waiting.clear();
    }
    std::erase_if(early_drops_, [&](const auto& drop) { return drop.second.first == rank; });
    for (auto lent = lent_.begin(); lent != lent_.end();) {
      if (lent->second.to == rank) let_go.push_back(std::move(lent->second.handle));
      lent = lent->second.to == rank ? lent_.erase(lent) : std::next(lent);
    }
    for (auto& [id, weak] : borrowed_) {
      auto handle = weak.lock();
      if (handle && handle->owner == rank) handle->lost = true;
      let_go.push_back(std::move(handle));
    }
    // The owner will not note anything any more; the lenders need not wait for that.
    std::vector<Holder> keys;
    for (const auto& [key, asked] : asked_) {
      if (asked.owner == rank) keys.push_back(key);
    }
    for (const auto& key : keys) noted(key, out, let_go);
  }
  let_go.clear();
  for (auto& [then, error] : failed) services_.later([then = std::move(then), error = error] { then(nullptr, error); });
  send(std::move(out));
  dispose(std::move(garbage));
}

void Table::close() {
  std::map<RefId, Owned> owned;
  std::map<uint64_t, Lent> lent;
  {
    base::Lock lock(mutex_);
    closed_ = true;
    // Own handles outlive us, and local_value() with them; what only others held goes.
    for (auto entry = owned_.begin(); entry != owned_.end();) {
      const bool ours = entry->second.handles > 0;
      if (!ours) owned.insert(std::move(*entry));
      entry = ours ? std::next(entry) : owned_.erase(entry);
    }
    lent.swap(lent_);
    asked_.clear();
    early_drops_.clear();
  }
}

Table::Stats Table::stats() const {
  base::Lock lock(mutex_);
  size_t borrowed = 0;
  for (const auto& [id, handle] : borrowed_) borrowed += !handle.expired();
  return {owned_.size(), borrowed, lent_.size(), asked_.size() + early_drops_.size()};
}

// --- For people ---

Debug::Reference Table::describe(const RefId& id, Rank owner, std::string origin) const {
  const auto number = std::to_string(id.number & ((uint64_t{1} << counter_bits) - 1));
  return {services_.name_of(maker_of(id)) + "#" + number, services_.name_of(owner), std::move(origin)};
}

void Table::describe(Debug& debug) const {
  Handles let_go;  // Not under the lock.
  base::Lock lock(mutex_);
  for (const auto& [id, owned] : owned_) {
    auto& reference =
        debug.owned.emplace_back(describe(id, self_, owned.origin.empty() ? "not made yet" : owned.origin));
    for (const auto& [rank, hold] : owned.holders) reference.holders.push_back(services_.name_of(rank));
  }
  for (const auto& [id, weak] : borrowed_) {
    auto handle = weak.lock();
    if (handle) debug.held.push_back(describe(id, handle->owner, handle->origin));
    let_go.push_back(std::move(handle));
  }
  for (const auto& [number, lent] : lent_) {
    auto reference = describe(lent.handle->id, lent.handle->owner, lent.handle->origin);
    reference.holders.push_back(services_.name_of(lent.to));
    debug.lent.push_back(std::move(reference));
  }
  debug.unsettled += asked_.size() + early_drops_.size();
}

std::vector<Debug::Reference> Table::handles() const {
  Handles let_go;
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

}  // namespace farad::ref
