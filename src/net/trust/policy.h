#pragma once

#include <sys/socket.h>

#include <string>

#include "base/status.h"
#include "net/trust/secret.h"

namespace farad::net {

/// The one rule about whom to talk to: without a secret nobody beyond this machine's loopback, because anyone could
/// be there; with one, anybody who then proves to know it. Any thread.

/// Loopback of either family (an IPv4 one written as IPv6 included), or a unix socket.
bool is_loopback(const sockaddr& address);

/// May we listen on that address? Denied says what to do instead.
base::Status may_listen(const Secret& secret, const sockaddr& address);
/// May we talk to a peer there, whether it came to us or we want to go to it?
base::Status may_talk(const Secret& secret, const sockaddr& peer);

/// "127.0.0.1:4711", "[::1]:4711", "unix".
std::string to_text(const sockaddr& address);

}  // namespace farad::net
