#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "net/trust/handshake.h"

namespace farad::net {
namespace {

using base::Code;
using base::Status;

Status broken(std::string_view purpose, const std::string& why) {
  return {Code::PeerLost, "[trust] handshake for \"" + std::string(purpose) + "\": " + why};
}

Status wait_for(int fd, short events, std::string_view purpose, base::TimePoint deadline) {
  for (;;) {
    int wait_ms = -1;
    if (deadline != base::never) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::Clock::now()).count();
      if (left <= 0) {
        return {Code::Timeout,
                "[trust] handshake for \"" + std::string(purpose) + "\": the other side does not answer"};
      }
      wait_ms = static_cast<int>(std::min<int64_t>(left, 60'000));
    }
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, wait_ms);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return broken(purpose, "poll: " + std::system_category().message(errno));
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Status send_all(int fd, std::string_view bytes, std::string_view purpose, base::TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (!would_block()) {
      return broken(purpose, "send: " + std::system_category().message(errno));
    } else if (Status status = wait_for(fd, POLLOUT, purpose, deadline); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace

Status shake_hands(int fd, Handshake::Role role, const Secret& secret, std::string_view purpose,
                   base::TimePoint deadline) {
  Handshake handshake(role, secret, purpose);
  if (Status status = send_all(fd, handshake.take_output(), purpose, deadline); !status.ok()) return status;

  while (!handshake.done()) {
    char bytes[Handshake::hello_bytes];
    const ssize_t got = ::recv(fd, bytes, handshake.wants(), MSG_DONTWAIT);
    if (got == 0) return broken(purpose, "the other side closed the connection");
    if (got < 0) {
      if (!would_block()) return broken(purpose, "recv: " + std::system_category().message(errno));
      if (Status status = wait_for(fd, POLLIN, purpose, deadline); !status.ok()) return status;
      continue;
    }
    size_t consumed = 0;
    const Status verdict = handshake.feed({bytes, static_cast<size_t>(got)}, consumed);
    const Status sent = send_all(fd, handshake.take_output(), purpose, deadline);
    if (!verdict.ok()) return verdict;
    if (!sent.ok()) return sent;
  }
  return {};
}

}  // namespace farad::net
