#include "ref/table.h"

#include <farad/error.h>

#include <tuple>
#include <utility>

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::ref {

using base::Rank;
using detail::RefHandle;
using detail::RefId;

namespace {

/// What a maker tells of a value that it did not make.
using Why = std::optional<std::pair<base::Code, std::string>>;

/// Null if it tells nothing; what came by message may be no failure at all.
std::exception_ptr error_of(const Why& why) {
  if (!why || why->first <= base::Code::Ok || why->first > base::Code::Closed) return nullptr;
  return base::Status(why->first, why->second).exception();
}

}  // namespace

Table::Table(Rank self, uint64_t birth, Services services)
    : self_(self), birth_(birth), services_(std::move(services)) {}

// --- What is done without the lock ---

void Table::finish(Afterwards after) {
  after.handles.clear();
  for (auto& [to, note] : after.notes) post(to, note);
  for (auto& use : after.uses) services_.later(std::move(use));
  // A value's end is foreign code, perhaps long: not where messages are taken in.
  if (!after.garbage.empty()) {
    services_.discard([garbage = std::move(after.garbage)]() mutable { garbage.clear(); });
  }
}

void Table::post(Rank to, const Note& note) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(rpc::Kind::Reference);
  Why why;
  if (note.why) {
    const auto status = base::status_of(note.why);
    why.emplace(status.code(), status.message());
  }
  wire::encode(std::make_tuple(note.what, note.id.maker, note.id.number, note.number, why), message);
  const auto sent = services_.post(to, std::move(message));
  if (note.what == What::Hold) return asked({to, note.number}, sent);
  if (note.what != What::Ask || sent.status.ok()) return;
  Afterwards after;
  {
    base::Lock lock(mutex_);
    is_gone(note.id, after);
  }
  finish(std::move(after));
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

/// One that we do not know has not been made yet, or is gone: its maker can tell.
Table::Owned& Table::find_or_ask(const RefId& id, Afterwards& after) {
  auto [found, is_new] = owned_.try_emplace(id);
  if (!is_new) return found->second;
  if (maker_of(id) == self_) {
    found->second.ready = true;
    found->second.error = gone();
  } else {
    after.notes.emplace_back(maker_of(id), Note{What::Ask, id});
  }
  return found->second;
}

std::exception_ptr Table::gone() const {
  return std::make_exception_ptr(PeerLost("[ref] the value is no longer on " + services_.name_of(self_) +
                                          ": a worker was lost before this reference to it had come"));
}

std::exception_ptr Table::unmade() const {
  return std::make_exception_ptr(Closed("[ref] " + services_.name_of(self_) + " was closed before the value was made"));
}

void Table::is_gone(const RefId& id, Afterwards& after, std::exception_ptr why) {
  const auto found = owned_.find(id);
  if (found != owned_.end() && !found->second.expected) settle(id, nullptr, why ? why : gone(), after);
}

bool Table::is_ready(const RefId& id) const {
  base::Lock lock(mutex_);
  const auto found = owned_.find(id);
  return found == owned_.end() || found->second.ready;
}

void Table::expect(net::Peer maker, const RefId& id, const std::string& function) {
  base::Lock lock(mutex_);
  auto& owned = owned_[id];
  owned.expected = true;
  owned.origin = "remote of \"" + function + "\" by " + services_.name_of(maker.rank);
  // One of our own has a handle. One that is lost meanwhile holds nothing.
  if (maker.rank != self_ && !lost_.contains(maker)) owned.holders.insert({maker, makers_hold(id)});
}

void Table::keep(const RefId& id, std::shared_ptr<void> value) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    settle(id, std::move(value), nullptr, after);
  }
  finish(std::move(after));
}

void Table::fail(const RefId& id, std::exception_ptr error) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    settle(id, nullptr, std::move(error), after);
  }
  finish(std::move(after));
}

void Table::settle(const RefId& id, std::shared_ptr<void> value, std::exception_ptr error, Afterwards& after) {
  const auto found = owned_.find(id);
  if (found == owned_.end() || found->second.ready) {
    after.garbage.push_back(std::move(value));
    return;
  }
  auto& owned = found->second;
  owned.value = value;
  owned.error = error;
  owned.ready = true;
  for (auto& then : std::exchange(owned.waiting, {})) {
    after.uses.push_back([then = std::move(then), value, error] { then(value, error); });
  }
  free_if_unheld(id, after);
}

void Table::when_ready(const RefId& id, Then then) {
  Afterwards after;
  std::shared_ptr<void> value;
  std::exception_ptr error;
  bool ready = false;
  {
    base::Lock lock(mutex_);
    auto& owned = find_or_ask(id, after);
    ready = owned.ready;
    value = owned.value;
    error = owned.error;
    if (!ready) owned.waiting.push_back(then);
    free_if_unheld(id, after);  // It may only just have turned out to be gone.
  }
  finish(std::move(after));
  if (ready) then(std::move(value), std::move(error));
}

void Table::free_if_unheld(const RefId& id, Afterwards& after) {
  const auto found = owned_.find(id);
  if (found == owned_.end()) return;
  auto& owned = found->second;
  // One that is being made is freed when it is made: whoever waits for it already gets it.
  if (!owned.ready || owned.handles > 0 || !owned.holders.empty()) return;
  after.garbage.push_back(std::move(owned.value));
  owned_.erase(found);
}

void Table::hold(const RefId& id, const Holder& holder, Afterwards& after) {
  find_or_ask(id, after).holders.insert(holder);
  after.notes.emplace_back(holder.first.rank, Note{What::Noted, id, holder.second});
}

void Table::drop(const RefId& id, net::Peer from, uint64_t number, Afterwards& after) {
  const auto found = owned_.find(id);
  if (found == owned_.end()) return;  // The loss of an earlier life took it.
  auto& holders = found->second.holders;
  // It may be quicker than our thread that sent it, and has yet to say to which life.
  if (holders.erase({from, number}) + holders.erase({{from.rank, {}}, number}) > 0) free_if_unheld(id, after);
}

// --- News ---

void Table::on_message(net::Peer from, const wire::Message& message) {
  std::tuple<What, uint64_t, uint64_t, uint64_t, Why> parts;
  if (!wire::decode(message, parts).ok()) return;
  const Note note{
      std::get<0>(parts), {std::get<1>(parts), std::get<2>(parts)}, std::get<3>(parts), error_of(std::get<4>(parts))};
  Afterwards after;
  {
    base::Lock lock(mutex_);
    switch (note.what) {
      case What::Hold:
        hold(note.id, {from, note.number}, after);
        break;
      case What::Drop:
        drop(note.id, from, note.number, after);
        break;
      case What::Unmade:
        if (maker_of(note.id) == from.rank) is_gone(note.id, after, note.why);
        break;
      case What::Noted:
        noted({from.rank, note.number}, after);
        break;
      case What::Returned:
        if (const auto found = lent_.find(note.number); found != lent_.end() && found->second.to.rank == from.rank) {
          after.handles.push_back(std::move(found->second.handle));
          lent_.erase(found);
        }
        break;
      case What::Ask:
        was_asked(from, note.id, after);
        break;
    }
  }
  finish(std::move(after));
}

void Table::on_lost(net::Peer peer) {
  Afterwards after;
  {
    base::Lock lock(mutex_);
    lost_.insert(peer);
    lose_holder(peer, after);
    lose_owner(peer, after);
  }
  finish(std::move(after));
}

void Table::lose_holder(net::Peer peer, Afterwards& after) {
  std::vector<RefId> unheld, unmade;
  for (auto& [id, owned] : owned_) {
    if (std::erase_if(owned.holders, [&](const Holder& holder) { return holder.first == peer; }) > 0) {
      unheld.push_back(id);
    }
    // What it was to make, and we have only heard of, will not be made any more.
    if (!owned.expected && !owned.ready && maker_of(id) == peer.rank) unmade.push_back(id);
  }
  for (const auto& id : unheld) free_if_unheld(id, after);
  for (const auto& id : unmade) is_gone(id, after);
}

void Table::close() {
  std::map<RefId, Owned> owned;
  std::map<uint64_t, Lent> lent;
  Afterwards after;
  {
    base::Lock lock(mutex_);
    closed_ = true;
    // Own handles outlive us, and local_value() with them; what only others held goes.
    for (auto entry = owned_.begin(); entry != owned_.end();) {
      const bool ours = entry->second.handles > 0;
      if (ours && !entry->second.ready) settle(entry->first, nullptr, unmade(), after);
      if (!ours) owned.insert(std::move(*entry));
      entry = ours ? std::next(entry) : owned_.erase(entry);
    }
    lent.swap(lent_);
    asked_.clear();
  }
  finish(std::move(after));
}

}  // namespace farad::ref
