// The part of the table that deals with values that live elsewhere.

#include <tuple>
#include <utility>

#include "ref/table.h"

namespace farad::detail {

RefHandle::~RefHandle() { table->released(*this); }

}  // namespace farad::detail

namespace farad::ref {

using base::Rank;
using detail::RefHandle;
using detail::RefId;
using rpc::Loan;

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
  Afterwards after;
  {
    base::Lock lock(mutex_);
    handle->confirmed = true;
    noted({handle->owner, handle->hold}, after);  // It may have come back to us by others meanwhile.
    if (handle->wanted) after.notes.emplace_back(handle->owner, Note{What::Unmade, handle->id, 0, handle->failure()});
  }
  finish(std::move(after));
}

/// If the call that makes it is still under way, the owner will see for itself; else it is told, now or when that ends.
void Table::was_asked(net::Peer owner, const RefId& id, Afterwards& after) {
  std::exception_ptr why;
  if (const auto found = borrowed_.find(id); found != borrowed_.end()) {
    if (auto handle = found->second.lock()) {
      const bool making = handle->hold == makers_hold(id) && !handle->confirmed;
      handle->wanted = making;
      why = handle->failure();
      after.handles.push_back(std::move(handle));
      if (making) return;
    }
  }
  after.notes.emplace_back(owner.rank, Note{What::Unmade, id, 0, std::move(why)});
}

/// Of two members, one may not have heard yet that the other was started anew.
bool Table::is_of_our_group(const Table& other) const {
  return &other == this || services_.birth_of(other.self_) == other.birth_ || other.services_.birth_of(self_) == birth_;
}

/// Workers of one process can give each other references by hand, and their ranks say nothing of their group.
base::Status Table::may_lend(const detail::References& references) const {
  for (const auto& handle : references) {
    if (is_of_our_group(*handle->table)) continue;
    return {base::Code::Invalid, "a reference to a value of " + handle->table->name_of(handle->owner) +
                                     " in another group means nothing to the workers of this one"};
  }
  return {};
}

std::vector<Loan> Table::lend(Rank to, const detail::References& references) {
  std::vector<Loan> loans;
  Afterwards after;
  {
    base::Lock lock(mutex_);
    for (const auto& handle : references) {
      Loan loan{handle->id, handle->owner, 0, 0};
      if (handle->owner == self_) {
        // Holds that the owner makes are even, those that others ask for odd, so that they never meet.
        loan.hold = ++numbers_ * 2;
        // Also to ourselves: it holds while it is on its way. If the share is another worker's of this process, the
        // value may have gone, or the call that makes it may still be to come.
        find_or_ask(handle->id, after).holders.insert({{to, {}}, loan.hold});
      } else {
        loan.lend = ++numbers_;
        lent_[loan.lend] = {handle, {to, {}}};
      }
      loans.push_back(loan);
    }
  }
  finish(std::move(after));
  return loans;
}

void Table::sent(net::Peer to, const std::vector<Loan>& loans, const std::optional<RefId>& makes) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    const bool lost = lost_.contains(to);
    for (const auto& loan : loans) {
      if (const auto lent = lent_.find(loan.lend); lent != lent_.end()) {
        lent->second.to = to;
        if (!lost) continue;
        after.handles.push_back(std::move(lent->second.handle));
        lent_.erase(lent);
      } else if (const auto owned = owned_.find(loan.id); owned != owned_.end() && loan.hold != 0) {
        auto& holders = owned->second.holders;
        if (holders.erase({{to.rank, {}}, loan.hold}) == 0) continue;  // It has been let go of already.
        if (!lost) holders.insert({to, loan.hold});
        free_if_unheld(loan.id, after);
      }
    }
    if (const auto made = makes ? borrowed_.find(*makes) : borrowed_.end(); made != borrowed_.end()) {
      if (auto handle = made->second.lock()) {
        handle->life = to.incarnation;
        if (lost) handle->lost = true;
        after.handles.push_back(std::move(handle));
      }
    }
  }
  finish(std::move(after));
}

void Table::take_back(net::Peer to, const std::vector<Loan>& loans) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    for (const auto& loan : loans) {
      if (const auto lent = lent_.find(loan.lend); lent != lent_.end()) {
        after.handles.push_back(std::move(lent->second.handle));
        lent_.erase(lent);
      } else if (const auto owned = owned_.find(loan.id); owned != owned_.end()) {
        owned->second.holders.erase({{to.rank, {}}, loan.hold});  // If it was not said yet who got it.
        owned->second.holders.erase({to, loan.hold});
        free_if_unheld(loan.id, after);
      }
    }
  }
  finish(std::move(after));
}

detail::References Table::receive(net::Peer from, const std::vector<Loan>& loans, const std::string& function) {
  detail::References references;
  Afterwards after;
  {
    base::Lock lock(mutex_);
    for (const auto& loan : loans) references.push_back(take(from, loan, function, after));
  }
  finish(std::move(after));
  return references;
}

std::shared_ptr<RefHandle> Table::take(net::Peer from, const Loan& loan, const std::string& function,
                                       Afterwards& after) {
  const auto returned = [&] {
    if (loan.lend != 0) after.notes.emplace_back(from.rank, Note{What::Returned, loan.id, loan.lend});
  };
  if (loan.owner == self_) {
    returned();
    find_or_ask(loan.id, after);
    auto handle = handle_of_own(loan.id);
    if (loan.hold != 0) owned_[loan.id].holders.erase({{self_, {}}, loan.hold});
    return handle;
  }
  const auto origin = [&] { return "lent by " + services_.name_of(from.rank) + " with \"" + function + "\""; };
  std::shared_ptr<RefHandle> present;
  if (const auto found = borrowed_.find(loan.id); found != borrowed_.end()) present = found->second.lock();
  if (present && present->lost) {  // The value may live on all the same, and this share of it is good.
    after.handles.push_back(std::move(present));
    present = nullptr;
  }
  if (loan.hold != 0) {  // The owner itself lends.
    if (present) {
      after.notes.emplace_back(loan.owner, Note{What::Drop, loan.id, loan.hold});  // One hold is enough.
      return present;
    }
    auto handle = std::make_shared<RefHandle>(shared_from_this(), loan.id, loan.owner, loan.hold, origin());
    handle->confirmed = true;
    handle->life = from.incarnation;
    handle->lost = lost_.contains(from);
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
      entry.id = loan.id;
      entry.lenders.emplace_back(from.rank, loan.lend);
      // What makes it is ours and under way: confirm() ends this. Else the question has gone, and so it is.
      if (entry.life == base::Incarnation{}) entry.life = present->life;
    }
    return present;
  }
  auto handle = std::make_shared<RefHandle>(shared_from_this(), loan.id, loan.owner, ++numbers_ * 2 + 1, origin());
  borrowed_[loan.id] = handle;
  auto& entry = asked_[{loan.owner, handle->hold}];
  entry.handle = handle;
  entry.id = loan.id;
  entry.lenders.emplace_back(from.rank, loan.lend);
  after.notes.emplace_back(loan.owner, Note{What::Hold, loan.id, handle->hold});
  return handle;
}

/// The question for a hold has gone to the owner, or could not.
void Table::asked(const Asking& key, const net::Sent& sent) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    const auto found = asked_.find(key);
    if (found == asked_.end()) return;  // Noted already.
    auto handle = found->second.handle.lock();
    const bool lost = !sent.status.ok() || lost_.contains({key.first, sent.incarnation});
    found->second.life = sent.incarnation;
    if (handle) handle->life = sent.incarnation;
    if (lost && handle) handle->lost = true;
    after.handles.push_back(std::move(handle));
    if (lost) {
      found->second.dropped = false;
      noted(key, after);
    }
  }
  finish(std::move(after));
}

void Table::noted(const Asking& key, Afterwards& after) {
  const auto asked = asked_.find(key);
  if (asked == asked_.end()) return;
  if (auto handle = asked->second.handle.lock()) {
    handle->confirmed = true;
    after.handles.push_back(std::move(handle));
  }
  for (const auto& [lender, number] : asked->second.lenders) {
    after.notes.emplace_back(lender, Note{What::Returned, {}, number});
  }
  if (asked->second.dropped) after.notes.emplace_back(key.first, Note{What::Drop, asked->second.id, key.second});
  asked_.erase(asked);
}

void Table::released(const RefHandle& handle) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    if (handle.owner == self_) {
      const auto found = owned_.find(handle.id);
      if (found == owned_.end()) return;
      --found->second.handles;
      free_if_unheld(handle.id, after);
    } else {
      if (closed_) return;
      if (const auto found = borrowed_.find(handle.id); found != borrowed_.end() && found->second.expired()) {
        borrowed_.erase(found);
      }
      if (handle.lost) return;
      if (const auto asked = asked_.find({handle.owner, handle.hold}); asked != asked_.end()) {
        asked->second.dropped = true;  // The owner is told once it knows what of.
      } else {
        after.notes.emplace_back(handle.owner, Note{What::Drop, handle.id, handle.hold});
      }
    }
  }
  finish(std::move(after));
}

void Table::lose_owner(net::Peer peer, Afterwards& after) {
  for (auto lent = lent_.begin(); lent != lent_.end();) {
    if (lent->second.to == peer) after.handles.push_back(std::move(lent->second.handle));
    lent = lent->second.to == peer ? lent_.erase(lent) : std::next(lent);
  }
  for (auto& [id, weak] : borrowed_) {
    auto handle = weak.lock();
    if (handle && handle->owner == peer.rank && handle->life == peer.incarnation) handle->lost = true;
    after.handles.push_back(std::move(handle));
  }
  // The owner will not note anything any more; the lenders need not wait for that.
  std::vector<Asking> unanswered;
  for (auto& [key, asked] : asked_) {
    if (key.first != peer.rank || asked.life != peer.incarnation) continue;
    asked.dropped = false;  // With that life of the owner, the share is gone.
    unanswered.push_back(key);
  }
  for (const auto& key : unanswered) noted(key, after);
}

}  // namespace farad::ref
