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

/// As shake_on(), but may wait until the deadline to get rid of what it has to say.
Status go_on(int fd, Handshake& handshake, base::TimePoint deadline) {
  const std::string& purpose = handshake.purpose();
  for (;;) {
    if (Status sent = send_all(fd, handshake.take_output(), purpose, deadline); !sent.ok()) return sent;
    if (handshake.done()) return {};

    char bytes[Handshake::hello_bytes];
    const ssize_t got = ::recv(fd, bytes, handshake.wants(), MSG_DONTWAIT);
    if (got == 0) return broken(purpose, "the other side closed the connection");
    if (got < 0 && would_block()) return {};
    if (got < 0) return broken(purpose, "recv: " + std::system_category().message(errno));
    size_t consumed = 0;
    if (Status verdict = handshake.feed({bytes, static_cast<size_t>(got)}, consumed); !verdict.ok()) {
      (void)send_all(fd, handshake.take_output(), purpose, deadline);  // Its last word, by which the other fails too.
      return verdict;
    }
  }
}

}  // namespace

Status shake_on(int fd, Handshake& handshake) { return go_on(fd, handshake, base::Clock::now()); }

Status shake_hands(int fd, Handshake::Role role, const Secret& secret, std::string_view purpose,
                   base::TimePoint deadline) {
  Handshake handshake(role, secret, purpose);
  for (;;) {
    if (Status status = go_on(fd, handshake, deadline); !status.ok() || handshake.done()) return status;
    if (Status status = wait_for(fd, POLLIN, purpose, deadline); !status.ok()) return status;
  }
}

}  // namespace farad::net
