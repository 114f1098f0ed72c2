#include "net/trust/policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace farad::net {

bool is_loopback(const sockaddr& address) {
  switch (address.sa_family) {
    case AF_UNIX:
      return true;
    case AF_INET: {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    case AF_INET6: {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
      return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    default:
      return false;
  }
}

base::Status may_listen(const Secret& secret, const sockaddr& address) {
  if (!secret.empty() || is_loopback(address)) return {};
  return {base::Code::Denied, "[trust] listen on " + to_text(address) +
                                  ": without a secret only loopback is allowed; set FARAD_SECRET on every worker"};
}

base::Status may_talk(const Secret& secret, const sockaddr& peer) {
  if (!secret.empty() || is_loopback(peer)) return {};
  return {base::Code::Denied, "[trust] talk to " + to_text(peer) +
                                  ": without a secret only loopback is allowed; set FARAD_SECRET on every worker"};
}

std::string to_text(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  switch (address.sa_family) {
    case AF_UNIX:
      return "unix";
    case AF_INET: {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
      return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
    }
    case AF_INET6: {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
      return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
    }
    default:
      return "an unknown address family";
  }
}

}  // namespace farad::net
