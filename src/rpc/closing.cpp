#include "rpc/closing.h"

#include <tuple>
#include <utility>

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::rpc {

using base::Rank;

/// All that members say to each other here.
struct Closing::Note {
  What what;
  Traffic traffic;        // Report
  uint64_t number = 0;    // Enter, Pass
  std::vector<int> lost;  // Decided

  wire::Message encode() const {
    wire::Message message;
    message.kind = static_cast<uint8_t>(Kind::Closing);
    wire::encode(std::make_tuple(what, traffic.sent, traffic.received, number, lost), message);
    return message;
  }
  static base::Status decode(const wire::Message& message, Note& note) {
    std::tuple<What, std::vector<uint64_t>, std::vector<uint64_t>, uint64_t, std::vector<int>> parts;
    auto status = wire::decode(message, parts);
    note = {std::get<0>(parts), {std::get<1>(parts), std::get<2>(parts)}, std::get<3>(parts), std::get<4>(parts)};
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

void Closing::report(Outbox& out) {
  if (!begun_ || !idle_ || decided_) return;
  if (decider() == self_) {
    reports_[self_] = traffic_;
    return consider(out);
  }
  out.emplace_back(decider(), Note{What::Report, traffic_, 0, {}}.encode());
}

/// Connections are made on first use: one that was never used cannot tell of a peer's end, so the decider asks all.
void Closing::ask_all(Outbox& out) {
  if (decider() != self_) return;
  for (int r = 0; r < size_; ++r) {
    const Rank rank(static_cast<uint16_t>(r));
    if (rank != self_ && present(rank)) out.emplace_back(rank, Note{What::Ask, {}, 0, {}}.encode());
  }
}

void Closing::begin(Traffic traffic, bool idle) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    begun_ = true;
    traffic_ = std::move(traffic);
    idle_ = idle;
    ask_all(out);
    report(out);
  }
  dispatch(std::move(out));
}

void Closing::update(Traffic traffic, bool idle) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    if (!begun_ || decided_) return;
    if (idle == idle_ && traffic.sent == traffic_.sent && traffic.received == traffic_.received) return;
    traffic_ = std::move(traffic);
    idle_ = idle;
    report(out);
  }
  dispatch(std::move(out));
}

void Closing::consider(Outbox& out) {
  if (decided_ || decider() != self_) return;
  std::vector<Rank> members;
  for (int r = 0; r < size_; ++r) {
    if (const Rank rank(static_cast<uint16_t>(r)); present(rank)) members.push_back(rank);
  }
  for (Rank rank : members) {
    if (!reports_.contains(rank)) return;
  }
  for (Rank one : members) {
    for (Rank other : members) {
      if (reports_[one].sent[other.value] != reports_[other].received[one.value]) return;
    }
  }
  decided_ = true;
  confirmed_.insert(self_);
  std::vector<int> lost;
  for (Rank rank : lost_) lost.push_back(rank.value);
  for (Rank rank : members) {
    if (rank != self_) out.emplace_back(rank, Note{What::Decided, {}, 0, lost}.encode());
  }
}

uint64_t Closing::enter_barrier() {
  Outbox out;
  uint64_t number = 0;
  {
    base::Lock lock(mutex_);
    number = ++entered_;
    if (decider() == self_) {
      entries_[self_] = number;
      ask_all(out);
      consider_barrier(out);
    } else {
      out.emplace_back(decider(), Note{What::Enter, {}, number, {}}.encode());
    }
  }
  dispatch(std::move(out));
  return number;
}

void Closing::consider_barrier(Outbox& out) {
  uint64_t least = UINT64_MAX;
  for (int r = 0; r < size_; ++r) {
    const Rank rank(static_cast<uint16_t>(r));
    if (!present(rank)) continue;
    const auto entry = entries_.find(rank);
    least = std::min(least, entry == entries_.end() ? 0 : entry->second);
  }
  if (least == UINT64_MAX || least <= passed_) return;
  passed_ = least;
  for (int r = 0; r < size_; ++r) {
    const Rank rank(static_cast<uint16_t>(r));
    if (rank != self_ && present(rank)) out.emplace_back(rank, Note{What::Pass, {}, passed_, {}}.encode());
  }
}

void Closing::leave() {
  Outbox out;
  {
    base::Lock lock(mutex_);
    for (int r = 0; r < size_; ++r) {
      const Rank rank(static_cast<uint16_t>(r));
      if (rank != self_ && present(rank)) out.emplace_back(rank, Note{What::Left, {}, 0, {}}.encode());
    }
  }
  dispatch(std::move(out));
}

void Closing::on_message(Rank from, const wire::Message& message) {
  Note note{};
  if (!Note::decode(message, note).ok()) return;
  Outbox out;
  {
    base::Lock lock(mutex_);
    switch (note.what) {
      case What::Report:
        if (note.traffic.sent.size() != static_cast<size_t>(size_) ||
            note.traffic.received.size() != note.traffic.sent.size()) {
          return;
        }
        reports_[from] = std::move(note.traffic);
        consider(out);
        break;
      case What::Ask:
        report(out);
        break;
      case What::Decided:
        decided_ = true;
        // Others may have gone already because they heard of it before us; the verdict says who was really lost.
        lost_.clear();
        for (int rank : note.lost) lost_.insert(Rank(static_cast<uint16_t>(rank)));
        out.emplace_back(from, Note{What::Confirmed, {}, 0, {}}.encode());
        break;
      case What::Confirmed:
        confirmed_.insert(from);
        break;
      case What::Enter:
        entries_[from] = std::max(entries_[from], note.number);
        if (decider() == self_) consider_barrier(out);
        break;
      case What::Pass:
        passed_ = std::max(passed_, note.number);
        break;
      case What::Left:
        left_.insert(from);
        consider(out);
        if (decider() == self_) consider_barrier(out);
        report(out);
        break;
    }
  }
  dispatch(std::move(out));
}

void Closing::on_lost(Rank rank) {
  Outbox out;
  {
    base::Lock lock(mutex_);
    if (left_.contains(rank) || decided_) {
      confirmed_.insert(rank);  // It cannot wait for us any more.
    } else {
      const Rank before = decider();
      lost_.insert(rank);
      // Whoever decides now has heard nothing yet.
      if (before != decider()) {
        if (begun_) ask_all(out);
        if (entered_ > passed_) {
          if (decider() == self_) {
            entries_[self_] = entered_;
          } else {
            out.emplace_back(decider(), Note{What::Enter, {}, entered_, {}}.encode());
          }
        }
      }
      report(out);
      consider(out);
    }
  }
  dispatch(std::move(out));
}

void Closing::on_alive(Rank rank) {
  base::Lock lock(mutex_);
  if (!decided_) lost_.erase(rank);
}

bool Closing::begun() const {
  base::Lock lock(mutex_);
  return begun_;
}

bool Closing::decided() const {
  base::Lock lock(mutex_);
  return decided_;
}

bool Closing::confirmed() const {
  base::Lock lock(mutex_);
  if (!decided_) return false;
  if (!confirmed_.contains(self_)) return true;  // We did not decide it.
  for (int r = 0; r < size_; ++r) {
    const Rank rank(static_cast<uint16_t>(r));
    if (present(rank) && !confirmed_.contains(rank)) return false;
  }
  return true;
}

bool Closing::barrier_passed(uint64_t number) const {
  base::Lock lock(mutex_);
  return passed_ >= number;
}

std::set<Rank> Closing::lost() const {
  base::Lock lock(mutex_);
  return lost_;
}

}  // namespace farad::rpc
