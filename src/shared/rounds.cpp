#include "shared/rounds.h"

#include <algorithm>
#include <climits>
#include <string>

#include "base/futex.h"
#include "shared/seats.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;

/// How long who gives up waits for the lock, to be sure that it is not counted on any more.
constexpr auto last_word = 1s;

std::string named(uint32_t seat, uint32_t pid) {
  return "worker " + std::to_string(seat) + " (process " + std::to_string(pid) + ")";
}

}  // namespace

base::Status Rounds::meet(const Ticket& mine, const std::vector<at::Tensor>& tensors, const Ending& ending,
                          base::TimePoint deadline, uint64_t& version) {
  auto& header = segment_->header();
  auto& seat = header.seats[seat_];
  if (auto status = leave_last(deadline); !status.ok()) return status;
  slots_.fill(mine, tensors);
  base::Status result;
  uint64_t round = 0;
  for (bool here = false, over = false; !over;) {
    const uint32_t bell = header.round_bell.load();  // Before we look: then none that is rung meanwhile is missed.
    const auto now = base::Clock::now();
    const bool give_up = now >= deadline;
    const auto look = [&] {
      if (!here) {
        round = header.books.round.load();
        arrive();
      } else if (header.books.round.load() == round) {
        look_for_the_dead();
      }
      here = true;
      if (header.books.round.load() == round) (void)end_if_all_are_here(ending);
      over = header.books.round.load() != round || give_up;
      if (!over) return;
      result = header.books.round.load() != round ? outcome(round) : who_is_missing();
      version = header.books.version.load();
      seat.arrived.store(0);
    };
    try {
      // Who has come may be counted on as soon as the lock is somebody else's, so it does not go without a word.
      auto status = writer_.alone(look, here ? std::max(deadline, now + last_word) : deadline);
      if (!status.ok()) {
        if (!here) slots_.free(mine);
        return here ? base::Status(status.code(), status.message() + "; whether round " + std::to_string(round) +
                                                      " came about is not known here")
                    : status;
      }
    } catch (...) {
      slots_.free(mine);
      throw;
    }
    if (!over) base::futex_wait(header.round_bell, bell, next_look(deadline));
  }
  slots_.free(mine);
  return result;
}

/// Somebody may be reading what we brought, until we have had the lock.
base::Status Rounds::leave_last(base::TimePoint deadline) {
  auto& arrived = segment_->header().seats[seat_].arrived;
  if (arrived.load() == 0) return {};
  return writer_.alone([&] { arrived.store(0); }, deadline);
}

void Rounds::arrive() {
  auto& header = segment_->header();
  const uint64_t round = header.books.round.load();
  const auto& seats = header.seats;
  const bool first = std::none_of(std::begin(seats), std::end(seats),
                                  [&](const Seat& seat) { return seat.arrived.load() == round + 1; });
  if (first) header.round_began.store(nanoseconds(base::Clock::now()));
  header.seats[seat_].member.store(1);
  header.seats[seat_].arrived.store(round + 1);
}

/// One that has come and ended then has done its part; it is missed in the next round.
void Rounds::look_for_the_dead() const {
  auto& header = segment_->header();
  const uint64_t round = header.books.round.load();
  for (uint32_t i = 0; i < most_workers; ++i) {
    auto& seat = header.seats[i];
    if (seat.arrived.load() == round + 1) continue;
    const uint32_t pid = ended_at(seat);
    if (pid == 0) continue;
    // Before the first round has ended nobody knows who would have come.
    if (seat.member.load() != 0 || header.books.founded.load() == 0) lose(header, i, pid);
  }
}

bool Rounds::end_if_all_are_here(const Ending& ending) {
  auto& header = segment_->header();
  auto& books = header.books;
  const uint64_t round = books.round.load();
  std::vector<Ticket> tickets;
  size_t expected = 0, lost = 0;
  for (uint32_t i = 0; i < most_workers; ++i) {
    const auto& seat = header.seats[i];
    expected += seat.member.load();
    if (seat.member.load() != 0 && seat.arrived.load() == round + 1) tickets.push_back(slots_.ticket(i, 0));
    lost += seat.member.load() == 0 && seat.lost_in.load() == round + 1;
  }
  const bool founded = books.founded.load() != 0 || expected + lost >= header.members;
  const bool all = founded && tickets.size() == expected;
  const bool too_late = rules_.late.count() > 0 && base::Clock::now() >= too_late_from();
  if (tickets.empty() || !(all || too_late)) return false;
  if (rules_.fails_with_a_member && header.lost.round.load() == round + 1) {
    fail(Failure::Lost, header.lost.seat.load(), header.lost.pid.load());
    return true;
  }
  try {
    auto work = ending(tickets);
    const auto change = std::move(work.change);
    work.change = [&] {
      change();
      books.round.store(round + 1);
      books.founded.store(1);
    };
    writer_.together(work, tickets);
  } catch (...) {
    fail(Failure::Threw, seat_, header.seats[seat_].pid.load());  // Else the others would wait for us for ever.
    header.seats[seat_].arrived.store(0);
    throw;
  }
  header.round_bell.fetch_add(1);
  base::futex_wake(header.round_bell, INT_MAX);
  return true;
}

void Rounds::fail(Failure failure, uint32_t seat, uint32_t pid) const {
  auto& header = segment_->header();
  auto& books = header.books;
  writer_.wholly([&] {
    books.failure.store(static_cast<uint64_t>(failure));
    books.failed_seat.store(seat);
    books.failed_pid.store(pid);
    books.round.fetch_add(1);
    books.failed_round.store(books.round.load());
    books.founded.store(1);
  });
  header.round_bell.fetch_add(1);
  base::futex_wake(header.round_bell, INT_MAX);
}

base::Status Rounds::outcome(uint64_t round) const {
  const auto& books = segment_->header().books;
  if (books.failed_round.load() != round + 1) return {};
  const auto who =
      named(static_cast<uint32_t>(books.failed_seat.load()), static_cast<uint32_t>(books.failed_pid.load()));
  if (static_cast<Failure>(books.failure.load()) == Failure::Threw) {
    return {base::Code::Aborted, "[shared] round " + std::to_string(round) + " failed in " + who +
                                     ", which applied it for all; nothing was changed"};
  }
  return {base::Code::PeerLost, "[shared] " + who + " ended before round " + std::to_string(round) +
                                    " did, so nothing was changed; the others can go on by stepping again"};
}

base::Status Rounds::who_is_missing() const {
  const auto& header = segment_->header();
  const uint64_t round = header.books.round.load();
  std::string who;
  size_t members = 0;
  for (uint32_t i = 0; i < most_workers; ++i) {
    const auto& seat = header.seats[i];
    if (seat.member.load() == 0) continue;
    ++members;
    if (seat.arrived.load() != round + 1) who += (who.empty() ? "" : ", ") + named(i, seat.pid.load());
  }
  if (who.empty()) who = std::to_string(header.members - std::min<uint64_t>(header.members, members)) + " new members";
  return {base::Code::Timeout,
          "[shared] round " + std::to_string(round) + " waited for " + who + ", in vain; nothing was changed"};
}

base::TimePoint Rounds::next_look(base::TimePoint deadline) const {
  auto next = std::min(deadline, base::Clock::now() + look_around);
  if (rules_.late.count() > 0) {
    next = std::min(next, too_late_from());
  }
  return next;
}

base::TimePoint Rounds::too_late_from() const {
  const base::TimePoint began{std::chrono::nanoseconds(segment_->header().round_began.load())};
  return base::deadline_after(began, rules_.late);
}

}  // namespace farad::shared
