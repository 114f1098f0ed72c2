#include "net/tcp/hello.h"

#include <c10/util/Exception.h>

#include <cstring>

#include "net/tcp/address.h"
#include "wire/bytes.h"

namespace farad::net::tcp {

Hello::Encoded Hello::encode() const {
  TORCH_CHECK(address.size() < longest_address, "[tcp] our address \"", address, "\" is longer than ", longest_address);
  Encoded encoded{};
  char* at = wire::put(encoded.data(), from.value);
  at = wire::put(at, to.value);
  at = wire::put(at, static_cast<uint32_t>(answer));
  at = wire::put(at, birth);
  at = wire::put(at, attempt);
  std::memcpy(at, address.data(), address.size());
  return encoded;
}

base::Status Hello::decode(const Encoded& encoded, Hello& out) {
  const char* at = encoded.data();
  out.from = base::Rank(wire::take<uint16_t>(at));
  out.to = base::Rank(wire::take<uint16_t>(at));
  const auto answer = wire::take<uint32_t>(at);
  out.birth = wire::take<uint64_t>(at);
  out.attempt = wire::take<uint64_t>(at);
  out.address.assign(at, ::strnlen(at, longest_address));

  if (answer > static_cast<uint32_t>(Answer::Stranger)) {
    return {base::Code::Protocol, "[tcp] hello with the unknown answer " + std::to_string(answer)};
  }
  out.answer = static_cast<Answer>(answer);
  Address address;
  if (base::Status status = Address::parse(out.address, address); !status.ok()) {
    return {base::Code::Protocol, "[tcp] hello of rank " + std::to_string(out.from.value) + " without an address"};
  }
  return {};
}

}  // namespace farad::net::tcp
