#include "shared/seats.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace farad::shared {
namespace {

/// When a process started, in ticks since the machine did; 0 if there is none of that number, or only what is left of
/// it until its parent asks.
uint64_t start_of(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  // Behind the name, which may hold anything: state, and nineteen fields later the start.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, skipped;
  rest >> state;
  if (state == "Z" || state == "X") return 0;
  for (int i = 0; i < 18; ++i) rest >> skipped;
  uint64_t start = 0;
  rest >> start;
  return start;
}

}  // namespace

base::Status take_seat(Header& header, uint32_t& seat) {
  for (uint32_t i = 0; i < most_workers; ++i) {
    auto& one = header.seats[i];
    if (one.pid.load() != 0 && is_alive(one)) continue;
    const auto pid = static_cast<uint32_t>(::getpid());
    one.pid.store(0);  // Between two processes it is nobody's.
    if (one.writing.exchange(0) != 0) header.cut_off.fetch_add(1);
    one.started.store(start_of(pid));
    one.pid.store(pid);
    seat = i;
    return {};
  }
  return {base::Code::Invalid, "[shared] " + std::to_string(most_workers) + " processes use this model already"};
}

void leave_seat(Header& header, uint32_t seat) {
  if (sits_there(header.seats[seat])) header.seats[seat].pid.store(0);
}

bool sits_there(const Seat& seat) { return seat.pid.load() == static_cast<uint32_t>(::getpid()); }

bool is_alive(const Seat& seat) {
  const uint32_t pid = seat.pid.load();
  return pid != 0 && start_of(pid) == seat.started.load();
}

}  // namespace farad::shared
