#include "shared/seats.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#include "base/fd.h"
#include "base/futex.h"

namespace farad::shared {
namespace {

/// When a process started, in ticks since the machine did; 0 if there is none of that number, or only what is left of
/// it until its parent asks. None if that cannot be told: this process has no descriptor left, for one.
std::optional<uint64_t> start_of(uint32_t pid) {
  const base::Fd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t size = file ? ::read(file.get(), text, sizeof text) : -1;
  if (size < 0) return errno == ENOENT || errno == ESRCH ? std::optional<uint64_t>(0) : std::nullopt;
  const std::string line(text, static_cast<size_t>(size));
  // Behind the name, which may hold anything: state, and nineteen fields later the start.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, skipped;
  rest >> state;
  if (state == "Z" || state == "X") return 0;
  for (int i = 0; i < 18; ++i) rest >> skipped;
  uint64_t start = 0;
  rest >> start;
  return start;
}

/// What a process that ended has left half done.
void clear_away(Header& header, uint32_t seat) {
  auto& one = header.seats[seat];
  if (one.member.load() != 0) lose(header, seat, one.pid.load());
  one.arrived.store(0);
  one.busy.store(0);
  one.pending.store(0);
  if (header.manager.load() == seat + 1) {
    header.manager.store(0);
    header.managers_lost.fetch_add(1);
  }
  for (auto& slot : header.slots[seat]) {
    auto filling = SlotState::Filling;  // One that is ready is as good as if its process still lived.
    if (slot.state.compare_exchange_strong(filling, SlotState::Free)) header.discarded.fetch_add(1);
  }
}

}  // namespace

void lose(Header& header, uint32_t seat, uint32_t pid) {
  auto& one = header.seats[seat];
  const uint64_t round = header.books.round.load() + 1;
  if (one.lost_in.load() == round && one.member.load() == 0) return;
  header.lost.pid.store(pid);
  header.lost.seat.store(seat);
  header.lost.round.store(round);
  header.members_lost.fetch_add(1);
  one.lost_in.store(round);
  one.member.store(0);
}

base::Status take_seat(Header& header, uint32_t& seat) {
  seat = no_seat;
  for (uint32_t i = 0; i < most_workers; ++i) {
    auto& one = header.seats[i];
    if (one.pid.load() != 0 && is_alive(one)) continue;
    const auto pid = static_cast<uint32_t>(::getpid());
    const auto started = start_of(pid);
    if (!started)
      return {base::Code::Invalid, std::string("[shared] /proc/self/stat cannot be read: ") + std::strerror(errno)};
    if (one.pid.load() != 0) clear_away(header, i);
    one.pid.store(0);                                          // Between two processes it is nobody's.
    if (one.writing.load() != 0) header.cut_off.fetch_add(1);  // Before: a reader must miss the one or see the other.
    one.writing.store(0);
    one.started.store(*started);
    one.pid.store(pid);
    header.seats_used.store(std::max<uint64_t>(header.seats_used.load(), i + 1));
    seat = i;
    return {};
  }
  return {};
}

void leave_seat(Header& header, uint32_t seat) {
  auto& one = header.seats[seat];
  if (!sits_there(one)) return;
  uint64_t us = seat + 1;
  header.manager.compare_exchange_strong(us, 0);
  one.member.store(0);
  one.arrived.store(0);
  one.pending.store(0);
  one.pid.store(0);
  // Those who wait for us need not any more.
  for (auto* bell : {&header.round_bell, &header.room_bell, &header.work_bell}) {
    bell->fetch_add(1);
    base::futex_wake(*bell, INT_MAX);
  }
}

bool sits_there(const Seat& seat) { return seat.pid.load() == static_cast<uint32_t>(::getpid()); }

bool is_alive(const Seat& seat) {
  const uint32_t pid = seat.pid.load();
  if (pid == 0) return false;
  const auto start = start_of(pid);
  return !start || *start == seat.started.load();  // In doubt it lives: a seat must not be taken from one that does.
}

uint32_t ended_at(const Seat& seat) {
  if (is_alive(seat)) return 0;
  return seat.pid.load();  // Only now: who has left while we looked is not alive there either, and has not ended.
}

}  // namespace farad::shared
