#include "net/rendezvous/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "net/trust/policy.h"

namespace farad::net::meeting {
namespace {

using base::Code;
using base::Status;

std::string why(const std::string& doing, int error) { return doing + ": " + std::strerror(error); }

base::Fd make_socket(int family) {
  return base::Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

void set(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof(value)); }

Address local_end(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

Address any_v6(uint16_t port) {
  Address address;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_any;
  v6.sin6_port = htons(port);
  address.length = sizeof(v6);
  return address;
}

Address v4(uint32_t host, uint16_t port) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(host);
  v4.sin_port = htons(port);
  address.length = sizeof(v4);
  return address;
}

/// A machine's name may be loopback on that machine only: Debian writes it into /etc/hosts so.
bool means_the_same_everywhere(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

/// 0 or the errno.
int try_listen(const Address& address, base::Fd& out) {
  auto socket = make_socket(address.get().sa_family);
  if (!socket) return errno;
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // Connections of a former host may still be fading away.
  if (address.get().sa_family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), &address.get(), address.length) != 0) return errno;
  if (::listen(socket.get(), SOMAXCONN) != 0) return errno;
  out = std::move(socket);
  return 0;
}

bool not_of_this_machine(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

}  // namespace

Status resolve(const std::string& host, uint16_t port, std::vector<Address>& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return {Code::PeerLost, "the address of host \"" + host + "\" is not known: " + ::gai_strerror(error)};
  out.clear();
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    Address& address = out.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return {};
}

Status listen_at(const std::string& host, uint16_t port, const Secret& secret, base::Fd& out, Address& reach) {
  std::vector<Address> candidates;
  if (auto status = resolve(host, port, candidates); !status.ok()) return status;
  for (const auto& candidate : candidates)
    if (auto status = may_listen(secret, candidate.get()); !status.ok()) return status;

  // Everywhere if the others may know us by an address that is not ours: another meaning of the name, a forwarded port.
  const bool everywhere = !secret.empty() && !means_the_same_everywhere(host) && is_loopback(candidates.front().get());
  int error = EADDRNOTAVAIL;
  for (size_t i = 0; i < candidates.size() && !everywhere && not_of_this_machine(error); ++i) {
    reach = candidates[i];
    error = try_listen(candidates[i], out);
  }
  if (not_of_this_machine(error) && !secret.empty()) {
    reach = v4(INADDR_LOOPBACK, port);
    error = try_listen(any_v6(port), out);
    if (not_of_this_machine(error)) error = try_listen(v4(INADDR_ANY, port), out);
  }
  if (error == 0) return {};
  return {error == EADDRINUSE ? Code::Busy : Code::Invalid,
          why("rank 0 cannot listen on " + host + ":" + std::to_string(port), error)};
}

Status connect_to(const Address& address, const Secret& secret, base::TimePoint deadline, base::Fd& out) {
  if (auto status = may_talk(secret, address.get()); !status.ok()) return status;
  const auto doing = "connect to " + to_text(address.get());
  auto socket = make_socket(address.get().sa_family);
  if (!socket) return {Code::PeerLost, why(doing, errno)};
  if (::connect(socket.get(), &address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return {Code::PeerLost, why(doing, errno)};
    if (!wait_ready(socket.get(), POLLOUT, deadline)) return {Code::Timeout, doing + ": no answer"};
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return {Code::PeerLost, why(doing, error)};
  }
  // A connection to a port of this machine where nobody listens may get that very port as its own end, and then it is
  // connected to itself: it would shake hands with itself and keep the host from the port.
  const auto own = local_end(socket.get());
  if (to_text(own.get()) == to_text(address.get())) return {Code::PeerLost, why(doing, ECONNREFUSED)};
  set_options(socket.get());
  out = std::move(socket);
  return {};
}

void set_options(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

bool wait_ready(int fd, short events, base::TimePoint deadline) {
  while (true) {
    int wait_ms = -1;
    if (deadline != base::never) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::Clock::now()).count();
      wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
    }
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, wait_ms);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (wait_ms == 0) return false;
  }
}

std::string frame(std::string_view payload) {
  std::string bytes;
  bytes.reserve(frame_header + payload.size());
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(payload.size() >> shift & 0xff);
  return bytes.append(payload);
}

size_t frame_length(std::string_view header) {
  size_t length = 0;
  for (size_t i = 0; i < frame_header; ++i) length = length << 8 | static_cast<unsigned char>(header[i]);
  return length;
}

Status send_frame(int fd, std::string_view payload, base::TimePoint deadline) {
  const std::string bytes = frame(payload);
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t n = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      return {Code::PeerLost, why("send", errno)};
    } else if (!wait_ready(fd, POLLOUT, deadline)) {
      return {Code::Timeout, "the other side does not read"};
    }
  }
  return {};
}

Status receive_frame(int fd, size_t most, base::TimePoint deadline, std::string& payload) {
  std::string bytes;
  size_t wanted = frame_header;
  while (bytes.size() < wanted) {
    // Memory grows with what has arrived, not with what was announced.
    char piece[16 << 10];
    const ssize_t n = ::recv(fd, piece, std::min(sizeof(piece), wanted - bytes.size()), 0);
    if (n == 0) return {Code::PeerLost, "the connection was closed"};
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) return {Code::PeerLost, why("receive", errno)};
      if (!wait_ready(fd, POLLIN, deadline)) return {Code::Timeout, "no answer"};
      continue;
    }
    bytes.append(piece, static_cast<size_t>(n));
    if (bytes.size() == frame_header && wanted == frame_header) {
      const size_t length = frame_length(bytes);
      if (length > most) return {Code::Protocol, "a message of " + std::to_string(length) + " bytes is too long"};
      wanted += length;
    }
  }
  payload = bytes.substr(frame_header);
  return {};
}

}  // namespace farad::net::meeting
