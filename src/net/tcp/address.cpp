#include "net/tcp/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <memory>

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

std::string Address::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string reachable_host(const std::string& bound) {
  const bool v4 = bound == "0.0.0.0";
  if (!v4 && bound != "::") return bound;

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
