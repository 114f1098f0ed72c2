#include "net/rendezvous/place.h"

#include <charconv>
#include <string_view>

namespace farad::net {
namespace {

base::Status invalid(const std::string& url, const std::string& why) {
  return {base::Code::Invalid, "[net] rendezvous \"" + url + "\": " + why +
                                   "; accepted are tcp://host:port, file:///absolute/path and local://name"};
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

base::Status parse_tcp(std::string_view rest, Place& out) {
  std::string_view host, port;
  if (rest.starts_with('[')) {  // An IPv6 literal has colons of its own.
    const auto end = rest.find(']');
    if (end == std::string_view::npos) return invalid(out.url, "the bracket of the IPv6 address is not closed");
    host = rest.substr(1, end - 1);
    rest = rest.substr(end + 1);
    if (!rest.starts_with(':')) return invalid(out.url, "the port is missing");
    port = rest.substr(1);
  } else {
    const auto colon = rest.find(':');
    if (colon == std::string_view::npos) return invalid(out.url, "the port is missing");
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (port.find(':') != std::string_view::npos)
      return invalid(out.url, "an IPv6 address stands in brackets, as in tcp://[::1]:29500");
  }
  if (host.empty()) return invalid(out.url, "the host is missing");

  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535)
    return invalid(out.url, "\"" + std::string(port) + "\" is not a port (1 to 65535)");
  out.kind = Place::Kind::Tcp;
  out.where = host;
  out.port = static_cast<uint16_t>(number);
  return {};
}

}  // namespace

base::Status parse_place(const std::string& url, Place& out) {
  out = Place{};
  out.url = url;
  std::string_view rest = url;
  if (rest.find('\0') != std::string_view::npos) return invalid(url, "there is a zero byte in it");
  if (take_prefix(rest, "tcp://")) return parse_tcp(rest, out);
  if (take_prefix(rest, "file://")) {
    if (!rest.starts_with('/')) return invalid(url, "the path is not absolute");
    if (rest.ends_with('/')) return invalid(url, "the path names a directory, not a file");
    out.kind = Place::Kind::File;
    out.where = rest;
    return {};
  }
  if (take_prefix(rest, "local://")) {
    if (rest.empty()) return invalid(url, "the name is missing");
    out.kind = Place::Kind::Local;
    out.where = rest;
    return {};
  }
  return invalid(url, "it does not begin with a kind of meeting place we know");
}

}  // namespace farad::net
