#include "shared/writer.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "shared/history.h"

namespace farad::shared {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

void copy(const Books& from, Books& to, size_t seats) {
  const auto one = [](const auto& a, auto& b) { b.store(a.load(relaxed), relaxed); };
  one(from.version, to.version);
  one(from.rate, to.rate);
  one(from.samples, to.samples);
  one(from.round, to.round);
  one(from.founded, to.founded);
  one(from.failed_round, to.failed_round);
  one(from.failure, to.failure);
  one(from.failed_seat, to.failed_seat);
  one(from.failed_pid, to.failed_pid);
  for (size_t i = 0; i < seats; ++i) {
    one(from.tallies[i].applied, to.tallies[i].applied);
    one(from.tallies[i].last, to.tallies[i].last);
    one(from.tallies[i].staleness_sum, to.tallies[i].staleness_sum);
    one(from.tallies[i].staleness_most, to.tallies[i].staleness_most);
  }
}

}  // namespace

base::Status Writer::acquire(base::TimePoint deadline) {
  bool abandoned = false;
  if (auto status = segment_->header().lock.acquire(manners_, deadline, abandoned); !status.ok()) return status;
  // Only who has the lock makes the sequence odd, so whoever did has ended.
  if (segment_->header().sequence.load() % 2 != 0) {
    put_back();
    segment_->header().rolled_back.fetch_add(1);
  }
  return {};
}

base::Status Writer::alone(const std::function<void()>& act, base::TimePoint deadline) {
  if (auto status = acquire(deadline); !status.ok()) return status;
  try {
    act();
  } catch (...) {
    segment_->header().lock.release(manners_);
    throw;
  }
  segment_->header().lock.release(manners_);
  return {};
}

base::Status Writer::locked(const Work& work, base::TimePoint deadline, Done& done) {
  auto& header = segment_->header();
  done.sequence = work.sequence;
  const auto update = [&] {
    work.change();
    done.version = header.books.version.load(relaxed) + 1;
    if (work.observe) work.observe(done);
    note({seat_, 0, done.sequence, work.version_read}, done.version);
    header.books.version.store(done.version, relaxed);
  };
  return alone([&] { wholly(update); }, deadline);
}

void Writer::together(const Work& work, const std::vector<Ticket>& tickets) {
  auto& header = segment_->header();
  wholly([&] {
    work.change();
    const uint64_t version = header.books.version.load(relaxed) + 1;
    if (work.observe) work.observe({0, version});
    uint64_t oldest = version - 1;
    for (const auto& ticket : tickets) {
      enter(ticket, version);
      oldest = std::min(oldest, ticket.version_read);
    }
    write_down(header, {seat_, 0, 0, oldest}, version);
    header.books.version.store(version, relaxed);
  });
}

base::Status Writer::replace(const std::function<void()>& change, uint64_t version, base::TimePoint deadline) {
  auto& header = segment_->header();
  const auto replacement = [&] {
    change();
    for (auto& record : header.records) record.version.store(0, relaxed);  // They are of another past.
    header.books.version.store(version, relaxed);
  };
  return alone([&] { wholly(replacement); }, deadline);
}

void Writer::wholly(const std::function<void()>& change) {
  keep();
  try {
    change();
  } catch (...) {
    put_back();
    throw;
  }
  segment_->header().sequence.fetch_add(1, std::memory_order_release);  // Here it counts.
}

/// What is changed from here on can be put back.
void Writer::keep() {
  auto& header = segment_->header();
  std::memcpy(segment_->kept(), segment_->values(), segment_->values_bytes());
  copy(header.books, header.kept, header.seats_used.load(relaxed));
  std::atomic_thread_fence(std::memory_order_release);
  header.sequence.fetch_add(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // Nobody sees a change before he can see that there is one.
}

/// May itself be cut off, and is then done again.
void Writer::put_back() {
  auto& header = segment_->header();
  std::memcpy(segment_->values(), segment_->kept(), segment_->values_bytes());
  copy(header.kept, header.books, header.seats_used.load(relaxed));
  header.sequence.fetch_add(1, std::memory_order_release);
}

Writer::Done Writer::unlocked(const Work& work) {
  auto& header = segment_->header();
  auto& seat = header.seats[seat_];
  Done done;
  done.sequence = work.sequence;
  // Whoever wants to see the model at rest asks for a moment, and then looks who writes; we the other way round, so one
  // of us sees the other. Should he be killed, the moment passes.
  for (seat.writing.store(1); nanoseconds(base::Clock::now()) < header.pause_until.load(); seat.writing.store(1)) {
    seat.writing.store(0);
    ::sched_yield();
  }
  std::exception_ptr thrown;  // by who is told: the update is done, and counts all the same
  try {
    work.change();
    done.version = header.books.version.fetch_add(1) + 1;
    if (work.observe) work.observe(done);
  } catch (...) {
    thrown = std::current_exception();
  }
  seat.writing.store(0);
  if (done.version != 0) {
    note({seat_, 0, done.sequence, work.version_read}, done.version);
  }
  if (thrown) std::rethrow_exception(thrown);
  return done;
}

void Writer::note(const Ticket& update, uint64_t version) const {
  enter(update, version);
  write_down(segment_->header(), update, version);
}

void Writer::enter(const Ticket& ticket, uint64_t version) const {
  auto& tally = segment_->header().books.tallies[ticket.seat];
  const uint64_t staleness = version - 1 - std::min(ticket.version_read, version - 1);
  tally.applied.fetch_add(ticket.updates, relaxed);
  tally.last.store(ticket.sequence, relaxed);
  tally.staleness_sum.fetch_add(staleness * ticket.updates, relaxed);
  if (staleness > tally.staleness_most.load(relaxed)) tally.staleness_most.store(staleness, relaxed);
}

}  // namespace farad::shared
