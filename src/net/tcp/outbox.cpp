#include "net/tcp/outbox.h"

#include <algorithm>
#include <array>
#include <utility>

namespace farad::net::tcp {
namespace {

constexpr int most_slots = 64;
// One peer with a fast link and a large message must not keep the thread from the others.
constexpr uint64_t most_at_once = 4 << 20;

/// One system call for as many of the frames as fit into it.
template <class Iterator>
Io write_once(Stream& stream, Iterator first, Iterator last, bool& all) {
  std::array<iovec, most_slots> slots;
  int used = 0;
  uint64_t gathered = 0;
  for (Iterator frame = first; frame != last && used < most_slots; ++frame) {
    const int more = frame->gather(slots.data() + used, most_slots - used);
    uint64_t bytes = 0;
    for (int i = 0; i < more; ++i) bytes += slots[used + i].iov_len;
    used += more;
    gathered += bytes;
    // What a frame did not give yet goes before the next frame.
    if (bytes < frame->remaining()) break;
  }
  const Io io = stream.write(std::span(slots.data(), static_cast<size_t>(used)));
  uint64_t left = io.bytes;
  for (Iterator frame = first; left > 0; ++frame) {
    const uint64_t part = std::min(left, frame->remaining());
    frame->advance(part);
    left -= part;
  }
  all = io.bytes == gathered;
  return io;
}

}  // namespace

bool Outbox::admit(uint64_t bytes, bool urgent) {
  const uint64_t held = queued_ + reserved_;
  if (!urgent && held > 0 && held + bytes > limit_) {
    refused_ = true;
    return false;
  }
  reserved_ += bytes;
  return true;
}

void Outbox::push(wire::Outgoing frame) {
  frame.hold();
  queued_ += frame.remaining();
  frames_.push_back(std::move(frame));
}

Io Outbox::write_directly(Stream& stream, wire::Outgoing& frame) {
  Io io{Io::State::Moved, 0, 0};
  uint64_t written = 0;
  bool all = true;
  while (all && !frame.done() && written < most_at_once) {
    io = write_once(stream, &frame, &frame + 1, all);
    if (io.state != Io::State::Moved) break;
    written += io.bytes;
  }
  return io;
}

Io Outbox::write(Stream& stream, std::vector<wire::Outgoing>& unsent) {
  Io io{Io::State::Moved, 0, 0};
  uint64_t written = 0;
  bool all = true;
  while (all && !frames_.empty() && written < most_at_once) {
    io = write_once(stream, frames_.begin(), frames_.end(), all);
    if (io.state != Io::State::Moved) break;
    written += io.bytes;
    queued_ -= io.bytes;
    while (!frames_.empty() && frames_.front().done()) {
      if (!frames_.front().verdict().ok()) unsent.push_back(std::move(frames_.front()));
      frames_.pop_front();
    }
  }
  return io;
}

bool Outbox::take_relief() { return refused_ && queued_ + reserved_ <= limit_ / 2 && std::exchange(refused_, false); }

std::deque<wire::Outgoing> Outbox::clear() {
  queued_ = 0;
  return std::exchange(frames_, {});
}

}  // namespace farad::net::tcp
