#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/trust/secret.h"

namespace farad::net::meeting {

/// Sockets for a tcp:// meeting: not blocking, closed on exec. Messages are clauses without a prefix. What may get
/// better by itself is PeerLost (nobody listens yet, the connection broke, the name is not known yet).

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr& get() const { return reinterpret_cast<const sockaddr&>(storage); }
};

base::Status resolve(const std::string& host, uint16_t port, std::vector<Address>& out);

/// Listens where workers that were given `host` will look. `reach` is where this process reaches it. Busy: the port is
/// taken. Denied: not loopback and no secret.
base::Status listen_at(const std::string& host, uint16_t port, const Secret& secret, base::Fd& out, Address& reach);

/// Denied as above. Timeout at the deadline.
base::Status connect_to(const Address& address, const Secret& secret, base::TimePoint deadline, base::Fd& out);

/// Small messages leave at once, and a peer whose machine is gone is noticed within three seconds.
void set_options(int fd);

/// False at the deadline. True on errors too: the next call on `fd` tells which.
bool wait_ready(int fd, short events, base::TimePoint deadline);

/// A message is its length in four bytes, the highest first, and then itself.
inline constexpr size_t frame_header = 4;
std::string frame(std::string_view payload);
size_t frame_length(std::string_view header);

base::Status send_frame(int fd, std::string_view payload, base::TimePoint deadline);
/// Protocol: longer than `most`.
base::Status receive_frame(int fd, size_t most, base::TimePoint deadline, std::string& payload);

}  // namespace farad::net::meeting
