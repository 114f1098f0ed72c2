#include "net/tcp/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <memory>

#include "base/fd.h"
#include "net/trust/policy.h"

namespace farad::net::tcp {

base::Status Address::parse(const std::string& text, Address& out) {
  const size_t colon = text.rfind(':');
  const bool bracketed = !text.empty() && text.front() == '[';
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (bracketed) host = host.size() > 2 && host.back() == ']' ? host.substr(1, host.size() - 2) : "";
  if (!bracketed && host.find(':') != std::string::npos) host.clear();

  unsigned port = 0;
  bool port_ok = false;
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + colon + 1, end, port);
    port_ok = result.ec == std::errc() && result.ptr == end && port > 0 && port < 65536;
  }
  if (host.empty() || !port_ok) {
    return {base::Code::Invalid, "[tcp] \"" + text + "\" is no address; it must read host:port or [v6 address]:port"};
  }
  out = {std::move(host), static_cast<uint16_t>(port)};
  return {};
}

std::string Address::text() const { return (is_v6(host) ? "[" + host + "]" : host) + ":" + std::to_string(port); }

bool is_v6(const std::string& numeric_host) { return numeric_host.find(':') != std::string::npos; }

std::string address_toward(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  // The kernel chooses the route without regard to the port, but wants one.
  if (host.empty() || ::getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    const base::Fd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // A datagram socket that is connected has only been given its addresses.
    if (!socket || ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0) continue;
    sockaddr_storage storage{};
    auto* const own = reinterpret_cast<sockaddr*>(&storage);
    socklen_t length = sizeof storage;
    if (::getsockname(socket.get(), own, &length) != 0 || is_loopback(*own)) continue;
    char text[NI_MAXHOST];
    if (::getnameinfo(own, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (!std::strchr(text, '%')) return text;  // The name of a link of ours follows it.
  }
  return {};
}

std::string reachable_host(const std::string& bound, const std::string& toward_others) {
  const bool v4 = bound == "0.0.0.0";
  if (!v4 && bound != "::") return bound;
  if (!toward_others.empty() && !(v4 && is_v6(toward_others))) return toward_others;

  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return v4 ? "127.0.0.1" : "::1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) || (entry->ifa_flags & IFF_LOOPBACK)) continue;
    // A socket bound to all of IPv6 takes IPv4 too, and that is what most networks route.
    if (entry->ifa_addr->sa_family != AF_INET) continue;
    char host[NI_MAXHOST];
    if (::getnameinfo(entry->ifa_addr, sizeof(sockaddr_in), host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0) {
      return host;
    }
  }
  return v4 ? "127.0.0.1" : "::1";
}

}  // namespace farad::net::tcp
