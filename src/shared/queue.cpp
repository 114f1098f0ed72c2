#include "shared/queue.h"

#include <algorithm>
#include <climits>
#include <optional>
#include <string>

#include "base/futex.h"
#include "shared/seats.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t nobody = 0;

base::TimePoint after(base::TimePoint start, std::chrono::milliseconds span) {
  return span.count() == 0 ? start : base::deadline_after(start, span);
}

void ring(std::atomic<uint32_t>& bell) {
  bell.fetch_add(1);
  base::futex_wake(bell, INT_MAX);
}

}  // namespace

base::Status Queue::submit(Ticket mine, const std::vector<at::Tensor>& tensors, const Ending& ending,
                           base::TimePoint deadline) {
  const auto room = [&] { return find_room(mine.number); };
  if (auto status = wait_for_room(room, ending, deadline); !status.ok()) return status;
  slots_.fill(mine, tensors);
  ring(segment_->header().work_bell);
  return {};
}

base::Status Queue::settle(const Ending& ending, base::TimePoint deadline) {
  const auto all_free = [&] {
    const auto& header = segment_->header();
    const auto& mine = header.slots[seat_];
    return std::all_of(mine, mine + header.slots_per_seat,
                       [](const Slot& slot) { return slot.state.load() == SlotState::Free; });
  };
  return wait_for_room(all_free, ending, deadline);
}

bool Queue::find_room(uint32_t& number) const {
  const auto& header = segment_->header();
  for (number = 0; number < header.slots_per_seat; ++number) {
    if (header.slots[seat_][number].state.load(std::memory_order_acquire) == SlotState::Free) return true;
  }
  return false;
}

base::Status Queue::wait_for_room(const std::function<bool()>& there_is, const Ending& ending,
                                  base::TimePoint deadline) {
  auto& header = segment_->header();
  while (true) {
    const uint32_t bell = header.room_bell.load();
    if (there_is()) return {};
    // Whoever waits for a manager that is no more does its work for once.
    if (header.was_managed.load() != 0 && !is_managed_by_another()) {
      const auto help = [&] {
        if (is_managed_by_another()) return;
        for (auto left = what_is_ready(); !left.empty();) apply(taken_from(left), ending);
      };
      if (auto status = writer_.alone(help, deadline); !status.ok()) return status;
      if (there_is()) return {};
    }
    if (base::Clock::now() >= deadline) {
      const uint64_t manager = header.manager.load();
      const auto who = manager == nobody ? std::string("no process manages this model: one has to call manage()")
                                         : "worker " + std::to_string(manager - 1) + " manages it, but did not";
      return {base::Code::Timeout,
              "[shared] the gradients of worker " + std::to_string(seat_) + " were not taken in time; " + who};
    }
    base::futex_wait(header.room_bell, bell, std::min(deadline, base::Clock::now() + look_around));
  }
}

bool Queue::is_managed_by_another() const {
  const auto& header = segment_->header();
  const uint64_t manager = header.manager.load();
  return manager != nobody && manager != seat_ + 1 && is_alive(header.seats[manager - 1]);
}

base::Status Queue::serve(const Ending& ending, base::TimePoint deadline, size_t& taken) {
  auto& header = segment_->header();
  std::optional<base::TimePoint> first_seen;
  for (taken = 0; taken == 0;) {
    const uint32_t bell = header.work_bell.load();
    const auto now = base::Clock::now();
    const auto look = [&] {
      if (is_managed_by_another()) return;
      if (header.manager.load() != seat_ + 1) {
        // A seat that is taken again is not free of what its last process was.
        if (header.manager.load() != nobody) header.managers_lost.fetch_add(1);
        header.manager.store(seat_ + 1);
        header.was_managed.store(1);
      }
      auto tickets = what_is_ready();
      if (tickets.empty()) return;
      if (!first_seen) first_seen = now;
      if (tickets.size() < batch_.most && now < after(*first_seen, batch_.within) && now < deadline) return;
      const auto batch = taken_from(tickets);
      taken = batch.size();
      apply(batch, ending);
    };
    if (auto status = writer_.alone(look, std::max(deadline, now + 1s)); !status.ok()) return status;
    if (taken > 0 || now >= deadline) break;
    auto next = std::min(deadline, now + look_around);
    if (first_seen) next = std::min(next, after(*first_seen, batch_.within));
    base::futex_wait(header.work_bell, bell, next);
  }
  return {};
}

/// By whoever has the lock. Those of each worker in their order, and the worker first that was served longest ago.
std::vector<Ticket> Queue::what_is_ready() const {
  auto& header = segment_->header();
  std::vector<Ticket> ready;
  for (uint32_t i = 0; i < most_workers; ++i) {
    const auto seat = static_cast<uint32_t>((header.next_served.load() + i) % most_workers);
    for (const auto& ticket : left_by(seat)) {
      if (ticket.sequence <= header.books.tallies[seat].last.load()) {
        // Whoever has applied it was killed before it could say so.
        header.duplicates.fetch_add(1);
        slots_.free(ticket);
        ring(header.room_bell);
      } else {
        ready.push_back(ticket);
      }
    }
  }
  return ready;
}

/// All that one worker has left, in its order. It may fill a slot that we have looked at already, and then another one
/// that we have not: we look until there is nothing new, and so never see the later one alone.
std::vector<Ticket> Queue::left_by(uint32_t seat) const {
  const auto& header = segment_->header();
  std::vector<Ticket> left;
  size_t before = 0;
  do {
    before = left.size();
    left.clear();
    for (uint32_t number = 0; number < header.slots_per_seat; ++number) {
      if (header.slots[seat][number].state.load(std::memory_order_acquire) != SlotState::Ready) continue;
      left.push_back(slots_.ticket(seat, number));
    }
  } while (left.size() != before);
  std::sort(left.begin(), left.end(), [](const Ticket& a, const Ticket& b) { return a.sequence < b.sequence; });
  return left;
}

/// As many as one update may be made of.
std::vector<Ticket> Queue::taken_from(std::vector<Ticket>& left) const {
  const auto end = left.begin() + static_cast<ptrdiff_t>(std::min(batch_.most, left.size()));
  const std::vector<Ticket> batch(left.begin(), end);
  left.erase(left.begin(), end);
  return batch;
}

void Queue::apply(const std::vector<Ticket>& tickets, const Ending& ending) {
  auto& header = segment_->header();
  const auto done = [&] {
    for (const auto& ticket : tickets) slots_.free(ticket);
    header.next_served.store((tickets.back().seat + 1) % most_workers);
    ring(header.room_bell);
  };
  try {
    writer_.together(ending(tickets), tickets);
  } catch (...) {  // They would fail again.
    for (const auto& ticket : tickets) header.seats[ticket.seat].rejected.fetch_add(1);
    done();
    throw;
  }
  done();
}

}  // namespace farad::shared
