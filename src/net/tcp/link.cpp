#include "net/tcp/link.h"

#include <algorithm>
#include <array>
#include <system_error>

namespace farad::net::tcp {
namespace {

// From here on bytes go where they will stay instead of through the scratch.
constexpr size_t large = 16 << 10;
// Reads per call, so that a peer that never stops sending leaves room for others.
constexpr int most_reads = 8;

}  // namespace

Link::Link(uint64_t cookie, Peer who, std::unique_ptr<Stream> stream, Poller& poller, const wire::Limits& limits,
           std::shared_ptr<wire::BufferPool> pool)
    : cookie_(cookie), who_(who), poller_(poller), stream_(std::move(stream)), incoming_(limits, std::move(pool)) {
  poller_.watch(stream_->descriptor(), EPOLLIN | EPOLLRDHUP, cookie_);
}

Link::~Link() { poller_.unwatch(stream_->descriptor()); }

void Link::watch_room(bool wanted) {
  // Asked anew each time: events are told once, and the last writing may have stopped with room left.
  if (!wanted && !watching_room_) return;
  watching_room_ = wanted;
  poller_.rewatch(stream_->descriptor(), EPOLLIN | EPOLLRDHUP | (wanted ? uint32_t{EPOLLOUT} : 0), cookie_);
}

base::Status Link::receive(uint32_t events, std::span<char> scratch, Sink& sink) {
  // Its end, unlike more data, is not told of again.
  const bool to_the_end = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
  for (int reads = 0; reads < most_reads; ++reads) {
    const std::span<char> target = incoming_.target();
    const bool direct = target.size() >= large;
    std::array<iovec, 2> slots{iovec{target.data(), target.size()}, iovec{scratch.data(), scratch.size()}};
    const std::span<iovec> used = direct ? std::span(slots) : std::span(slots).subspan(1);

    const Io io = stream_->read(used);
    if (io.state == Io::State::Later) return {};
    if (io.state == Io::State::Ended) return {base::Code::PeerLost, "it closed the connection"};
    if (io.state == Io::State::Broken) return {base::Code::PeerLost, std::system_category().message(io.error)};
    heard_.store(true, std::memory_order_relaxed);
    poller_.found(cookie_);

    const size_t in_place = direct ? std::min(io.bytes, target.size()) : 0;
    if (in_place > 0) {
      if (base::Status status = incoming_.filled(in_place); !status.ok()) return status;
      if (incoming_.complete()) deliver(sink);
    }
    if (base::Status status = take_in(scratch.first(io.bytes - in_place), sink); !status.ok()) return status;

    // Less than there was room for: the socket is empty, and need not be asked again to say so.
    if (!to_the_end && io.bytes < scratch.size() + (direct ? target.size() : 0)) return {};
  }
  poller_.again(cookie_, events);
  return {};
}

base::Status Link::take_in(std::span<const char> bytes, Sink& sink) {
  while (!bytes.empty()) {
    size_t consumed = 0;
    if (base::Status status = incoming_.feed(bytes, consumed); !status.ok()) return status;
    bytes = bytes.subspan(consumed);
    if (incoming_.complete()) deliver(sink);
  }
  return {};
}

void Link::deliver(Sink& sink) {
  const bool torn = incoming_.torn();
  wire::Message message = incoming_.take();
  if (!torn && message.kind != heartbeat_kind) sink.on_message(who_, std::move(message));
}

}  // namespace farad::net::tcp
