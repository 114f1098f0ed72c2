#include <cstdlib>
#include <vector>

#include "fuzz/fuzz_targets.h"
#include "fuzz/limits.h"
#include "wire/incoming.h"
#include "wire/outgoing.h"

namespace farad::fuzz {
namespace {

void must(bool condition) {
  if (!condition) std::abort();
}

/// What was taken in must be fit to be sent on.
void send_on(wire::Message message) {
  wire::Outgoing out;
  must(wire::Outgoing::make(message, small_limits(), out).ok());
  std::vector<char> bytes;
  while (!out.done()) {
    iovec slots[2];
    const int used = out.gather(slots, 2);
    must(used > 0);
    const auto* data = static_cast<const char*>(slots[0].iov_base);
    bytes.insert(bytes.end(), data, data + slots[0].iov_len);
    out.advance(slots[0].iov_len);
  }
  wire::Incoming again(small_limits(), wire::BufferPool::make(0));
  size_t consumed = 0;
  must(again.feed(bytes, consumed).ok() && again.complete() && consumed == bytes.size());
}

}  // namespace

void fuzz_frame(Input input) {
  wire::Incoming in(small_limits(), wire::BufferPool::make(1 << 20));
  std::span<const char> rest(reinterpret_cast<const char*>(input.data()), input.size());
  while (!rest.empty()) {
    size_t consumed = 0;
    if (!in.feed(rest, consumed).ok()) return;
    must(consumed > 0);
    rest = rest.subspan(consumed);
    if (!in.complete()) {
      must(rest.empty() && !in.target().empty());
      return;
    }
    const bool torn = in.torn();
    auto message = in.take();
    if (!torn) send_on(std::move(message));
  }
}

}  // namespace farad::fuzz
