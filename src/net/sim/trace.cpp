#include "net/sim/trace.h"

#include <iomanip>
#include <sstream>

namespace farad::net::sim {
namespace {

const char* meaning(Trace::Kind kind) {
  switch (kind) {
    case Trace::Kind::Run:
      return "runs: thread";
    case Trace::Kind::Start:
      return "started: thread, process";
    case Trace::Kind::End:
      return "ended: thread";
    case Trace::Kind::Send:
      return "sent: from, to, bytes";
    case Trace::Kind::Arrive:
      return "arrived: from, to, bytes";
    case Trace::Kind::Take:
      return "taken: from, to, bytes";
    case Trace::Kind::Drop:
      return "dropped: from, to, bytes";
    case Trace::Kind::Break:
      return "broken: from, to";
    case Trace::Kind::Lost:
      return "lost: by, peer, incarnation";
    case Trace::Kind::Crash:
      return "crashed: process";
    case Trace::Kind::Stop:
      return "stopped: process";
    case Trace::Kind::Resume:
      return "resumed: process";
    case Trace::Kind::Cut:
      return "cut: ranks here, ranks there";
    case Trace::Kind::Heal:
      return "healed: ranks here, ranks there";
    case Trace::Kind::Mark:
      return "marked";
  }
  return "?";
}

}  // namespace

void Trace::add(base::TimePoint when, Kind kind, uint64_t a, uint64_t b, uint64_t c) {
  const Step step{std::chrono::nanoseconds(when.time_since_epoch()).count(), kind, a, b, c};
  for (uint64_t word : {static_cast<uint64_t>(step.nanoseconds), static_cast<uint64_t>(kind), a, b, c}) {
    for (int byte = 0; byte < 8; ++byte) {  // FNV-1a
      hash_ = (hash_ ^ (word & 0xff)) * 0x100000001b3;
      word >>= 8;
    }
  }
  ++length_;
  if (latest_.size() == kept) latest_.pop_front();
  latest_.push_back(step);
}

std::string Trace::text() const {
  std::ostringstream out;
  if (length_ > latest_.size()) out << "... " << length_ - latest_.size() << " earlier steps\n";
  out << std::fixed << std::setprecision(6);
  for (const Step& step : latest_) {
    out << static_cast<double>(step.nanoseconds) * 1e-9 << " s  " << meaning(step.kind) << "  " << step.a << ' '
        << step.b << ' ' << step.c << '\n';
  }
  return out.str();
}

}  // namespace farad::net::sim
