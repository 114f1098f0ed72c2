#include "rpc/closing.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::rpc {

using base::Rank;

namespace {

std::vector<int> numbers_of(const std::set<Rank>& ranks) {
  std::vector<int> numbers;
  for (Rank rank : ranks) numbers.push_back(rank.value);
  return numbers;
}

std::set<Rank> ranks_of(const std::vector<int>& numbers) {
  std::set<Rank> ranks;
  for (int number : numbers) ranks.insert(Rank(static_cast<uint16_t>(number)));
  return ranks;
}

}  // namespace

/// All that members say to each other here.
struct Closing::Note {
  What what;
  Traffic traffic;        // Report
  uint64_t number = 0;    // Pass; which look the Report is of
  std::vector<int> lost;  // Decided, Lost
  bool close = false;     // Ask: its sender wants to close. Report: its sender has been asked so.
  Entry entry = {};       // Enter

  wire::Message encode() const {
    wire::Message message;
    message.kind = static_cast<uint8_t>(Kind::Closing);
    wire::encode(std::make_tuple(what, traffic.sent, traffic.received, number, lost, close, entry.look, entry.entered,
                                 entry.passed, entry.knows),
                 message);
    return message;
  }
  static base::Status decode(const wire::Message& message, Note& note) {
    std::tuple<What, std::vector<uint64_t>, std::vector<uint64_t>, uint64_t, std::vector<int>, bool, uint64_t, uint64_t,
               uint64_t, bool>
        parts;
    auto status = wire::decode(message, parts);
    note = {std::get<0>(parts), {std::get<1>(parts), std::get<2>(parts)},
            std::get<3>(parts), std::get<4>(parts),
            std::get<5>(parts), {std::get<6>(parts), std::get<7>(parts), std::get<8>(parts), std::get<9>(parts)}};
    return status;
  }
};

Closing::Closing(Rank self, int size, Send send, std::function<void()> changed)
    : self_(self), size_(size), send_(std::move(send)), changed_(std::move(changed)) {}

bool Closing::present(Rank rank) const { return !lost_.contains(rank) && !left_.contains(rank); }

Rank Closing::decider() const {
  Rank rank{};
  while (!present(rank) && rank.value + 1 < size_) ++rank.value;
  return rank;
}

void Closing::dispatch(Outbox out) {
  for (auto& [to, message] : out) send_(to, std::move(message));
  changed_();
}

std::vector<Rank> Closing::others() const {
  std::vector<Rank> ranks;
  for (int r = 0; r < size_; ++r) {
    if (const Rank rank(static_cast<uint16_t>(r)); rank != self_ && present(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void Closing::send_to_others(Outbox& out, const Note& note) const {
  for (Rank rank : others()) out.emplace_back(rank, note.encode());
}

void Closing::report(Outbox& out) {
  if (!begun_ || !now_.idle || decided_) return;
  if (decider() == self_) {
    reports_[self_] = {now_, true};
    return consider(out);
  }
  reported_to_ = decider();
  out.emplace_back(decider(), Note{What::Report, now_.traffic, now_.look, {}, asked_by_.contains(decider())}.encode());
}

/// Connections are made on first use: one that was never used cannot tell of a peer's end, so the decider asks all.
void Closing::ask_all(Outbox& out) {
  if (decider() != self_) return;
  for (Rank rank : others()) ask(rank, out);
}

void Closing::ask(Rank rank, Outbox& out) const { out.emplace_back(rank, Note{What::Ask, {}, 0, {}, begun_}.encode()); }

/// The living answer.
void Closing::greet_lost(Outbox& out) const {
  for (Rank rank : lost_) out.emplace_back(rank, Note{What::Greet, {}, 0, {}}.encode());
}

void Closing::begin(Activity now) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    begun_ = true;
    // Who came here meanwhile has looked later, and may have seen the last work end.
    if (now.look >= now_.look) now_ = std::move(now);
    greet_lost(out);
    ask_all(out);
    report(out);
  }
  dispatch(std::move(out));
}

void Closing::update(Activity now) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    // Threads look one after the other, but come here in any order.
    if (decided_ || now.look < now_.look) return;
    now_ = std::move(now);
    if (!begun_) return;
    // It will ask. But it must have heard from us once: that it is gone shows only where one has talked to it.
    if (decider() != self_ && !asked_by_.contains(decider()) && reported_to_ == decider()) return;
    report(out);
    if (out.empty() && !decided_) return;  // Calls that come and go wake nobody.
  }
  dispatch(std::move(out));
}

void Closing::consider(Outbox& out) {
  if (decided_ || decider() != self_) return;
  auto members = others();
  members.push_back(self_);
  for (Rank rank : members) {
    if (auto report = reports_.find(rank); report == reports_.end() || !report->second.asked) return;
  }
  for (Rank one : members) {
    for (Rank other : members) {
      if (reports_[one].activity.traffic.sent[other.value] != reports_[other].activity.traffic.received[one.value])
        return;
    }
  }
  decided_ = true;
  confirmed_.insert(self_);
  send_to_others(out, {What::Decided, {}, 0, numbers_of(lost_)});
}

uint64_t Closing::enter_barrier() {
  Outbox out;
  uint64_t number = 0;
  {
    base::Lock lock(mutex_);
    number = ++mine_.entered - before_;
    greet_lost(out);
    if (may_wait()) enter(out);
  }
  dispatch(std::move(out));
  return number;
}

bool Closing::give_up_barrier(uint64_t number) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    if (mine_.passed >= before_ + number) return false;
    mine_.entered = std::max(mine_.passed, std::min(mine_.entered, before_ + number - 1));
    enter(out);
  }
  dispatch(std::move(out));
  return true;
}

/// Who knows of a loss is about to give the barrier up; it must not be passed with us.
bool Closing::may_wait() const { return mine_.waits() && lost_.empty(); }

/// Tells whoever decides which barrier we have come to.
void Closing::enter(Outbox& out) {
  ++mine_.look;
  if (decider() == self_) return on_entry(self_, mine_, out);
  out.emplace_back(decider(), Note{What::Enter, {}, 0, {}, false, mine_}.encode());
}

void Closing::on_entry(Rank rank, const Entry& entry, Outbox& out) {
  if (entry.look < entries_[rank].look) return;  // An older one, overtaken.
  const bool first = std::none_of(entries_.begin(), entries_.end(),
                                  [&](const auto& known) { return known.second.entered >= entry.entered; });
  entries_[rank] = entry;
  if (entry.knows) learn(entry.passed, out);
  if (entry.waits() && first) ask_all(out);
  if (entry.waits() && !lost_.empty()) {
    send_to_others(out, {What::Lost, {}, 0, numbers_of(lost_)});
    greet_lost(out);
  }
  consider_barrier(out);
}

/// The group has passed so many.
void Closing::learn(uint64_t passed, Outbox& out) {
  mine_.passed = std::max(mine_.passed, passed);
  if (mine_.knows) {
    mine_.entered = std::max(mine_.entered, passed);
    return;
  }
  mine_.knows = true;
  before_ = passed;
  mine_.entered += passed;
  if (may_wait()) enter(out);
}

void Closing::consider_barrier(Outbox& out) {
  if (decider() != self_) return;
  auto members = others();
  members.push_back(self_);
  if (mine_.knows) tell_how_far(out);
  if (!lost_.empty()) return;
  if (!mine_.knows) {
    for (Rank rank : members) {
      if (!entries_[rank].waits()) return;
    }
    return learn(0, out);  // Which comes here again.
  }
  uint64_t least = UINT64_MAX;
  for (Rank rank : members) least = std::min(least, entries_[rank].entered);
  if (least <= mine_.passed) return;
  mine_.passed = least;
  for (auto& [rank, entry] : entries_) entry.passed = least;
  send_to_others(out, {What::Pass, {}, least, {}});
}

/// To those who do not know it: they are new, or have not heard of it because a connection broke. They come again.
void Closing::tell_how_far(Outbox& out) {
  for (auto& [rank, entry] : entries_) {
    if (rank == self_ || !entry.waits() || (entry.knows && entry.entered > mine_.passed)) continue;
    out.emplace_back(rank, Note{What::Pass, {}, mine_.passed, {}}.encode());
    entry = {entry.look};
  }
}

void Closing::leave() {
  Outbox out;
  {
    base::Lock lock(mutex_);
    leaving_ = true;
    send_to_others(out, {What::Left, {}, 0, {}});
  }
  dispatch(std::move(out));
}

bool Closing::all_know_we_left() const {
  base::Lock lock(mutex_);
  for (Rank rank : others()) {
    if (!know_we_left_.contains(rank)) return false;
  }
  return leaving_;
}

void Closing::on_message(Rank from, const wire::Message& message) {
  Note note{};
  if (!Note::decode(message, note).ok()) return;
  const auto size = static_cast<size_t>(size_);
  Outbox out;
  {
    base::Lock lock(mutex_);
    switch (note.what) {
      case What::Report:
        if (note.traffic.sent.size() != size || note.traffic.received.size() != size) return;
        if (reports_.contains(from) && note.number < reports_[from].activity.look) return;  // An older one, overtaken.
        reports_[from] = {{std::move(note.traffic), true, note.number}, note.close || reports_[from].asked};
        // It does not know that we wait for it: our question is on its way, or it was started anew since, or had taken
        // us for lost and forgotten it.
        if (begun_ && decider() == self_ && !note.close) ask(from, out);
        consider(out);
        break;
      case What::Ask:
        if (note.close) asked_by_.insert(from);
        if (may_wait()) enter(out);
        report(out);
        break;
      case What::Decided:
        decided_ = true;
        // Others may have gone already because they heard of it before us; the verdict says who was really lost.
        lost_ = ranks_of(note.lost);
        out.emplace_back(from, Note{What::Confirmed, {}, 0, {}}.encode());
        break;
      case What::Confirmed:
        confirmed_.insert(from);
        break;
      case What::Enter:
        on_entry(from, note.entry, out);
        break;
      case What::Pass:
        learn(note.number, out);
        consider_barrier(out);
        break;
      case What::Lost:
        for (Rank rank : ranks_of(note.lost)) {
          if (rank != self_ && present(rank)) remove(rank, lost_, out);
        }
        break;
      case What::Left:
        out.emplace_back(from, Note{What::KnowYouLeft, {}, 0, {}}.encode());
        if (present(from)) remove(from, left_, out);
        consider_barrier(out);
        break;
      case What::KnowYouLeft:
        know_we_left_.insert(from);
        break;
      case What::Greet:
        out.emplace_back(from, Note{What::Here, {}, 0, {}}.encode());
        break;
      case What::Here:  // on_alive() has heard it.
        break;
    }
  }
  dispatch(std::move(out));
}

void Closing::on_lost(Rank rank) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    if (decided_ || !present(rank)) {
      confirmed_.insert(rank);  // It cannot wait for us any more.
    } else {
      remove(rank, lost_, out);
      if (begun_) out.emplace_back(rank, Note{What::Greet, {}, 0, {}}.encode());
    }
  }
  dispatch(std::move(out));
}

/// `rank` is gone, in the way that `to` says.
void Closing::remove(Rank rank, std::set<Rank>& to, Outbox& out) {
  if (decided_) return;
  const Rank before = decider();
  to.insert(rank);
  reports_.erase(rank);  // If it comes back, it starts anew.
  entries_.erase(rank);
  if (reported_to_ == rank) reported_to_.reset();
  asked_by_.erase(rank);
  if (before != decider()) {  // Whoever decides now has heard nothing yet.
    if (begun_ || mine_.waits()) ask_all(out);
    if (may_wait()) enter(out);
  }
  // Those who wait at a barrier may never have talked to it.
  if (decider() == self_ && !lost_.empty()) send_to_others(out, {What::Lost, {}, 0, numbers_of(lost_)});
  report(out);
  consider(out);
}

void Closing::on_alive(Rank rank) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    const Rank before = decider();
    if (decided_ || lost_.erase(rank) == 0) return;
    confirmed_.erase(rank);
    if (before != decider()) entries_.clear();  // From here on they are told to the other.
    // It may be the one that decides now, and has heard nothing yet.
    if (begun_) ask_all(out);
    if (may_wait()) enter(out);
    report(out);
  }
  dispatch(std::move(out));
}

bool Closing::confirmed() const {
  base::Lock lock(mutex_);
  if (!decided_) return false;
  if (!confirmed_.contains(self_)) return true;  // We did not decide it.
  for (Rank rank : others()) {
    if (!confirmed_.contains(rank)) return false;
  }
  return true;
}

bool Closing::barrier_passed(uint64_t number) const {
  base::Lock lock(mutex_);
  return mine_.passed >= before_ + number;
}

std::set<Rank> Closing::lost() const {
  base::Lock lock(mutex_);
  return lost_;
}

}  // namespace farad::rpc
