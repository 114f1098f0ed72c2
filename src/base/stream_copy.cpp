#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace farad::base {

#if defined(__SSE2__)

void stream_copy(void* to, const void* from, size_t bytes) {
  constexpr size_t line = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  // Only whole lines can be written past the cache.
  const size_t head = std::min(bytes, (line - reinterpret_cast<uintptr_t>(out) % line) % line);
  std::memcpy(out, in, head);
  size_t done = head;
  for (; done + line <= bytes; done += line) {
    const auto* source = reinterpret_cast<const __m128i*>(in + done);
    auto* target = reinterpret_cast<__m128i*>(out + done);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // Such writes are not in order with others, which may say that this is there.
  std::memcpy(out + done, in + done, bytes - done);
}

#else

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace farad::base
