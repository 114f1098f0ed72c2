#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "wire/incoming.h"
#include "wire/outgoing.h"

/// A byte stream in memory, for messages to be written into and read from.
namespace farad::wire::test {

inline Outgoing outgoing(Message message, const Limits& limits = {}) {
  Outgoing out;
  const auto status = Outgoing::make(message, limits, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

inline Message with_tensors(std::vector<at::Tensor> tensors) {
  Message message;
  message.kind = 3;
  message.tensors = std::move(tensors);
  return message;
}

/// Writes up to `most` bytes, `slots` pieces at a time.
inline void write_some(Outgoing& out, Bytes& stream, uint64_t most, int slots = 3) {
  while (most > 0 && !out.done()) {
    std::vector<iovec> pieces(slots);
    pieces.resize(out.gather(pieces.data(), slots));
    ASSERT_FALSE(pieces.empty());
    for (const auto& piece : pieces) {
      const auto n = std::min<uint64_t>(most, piece.iov_len);
      const auto* data = static_cast<const char*>(piece.iov_base);
      stream.insert(stream.end(), data, data + n);
      out.advance(n);
      most -= n;
      if (n < piece.iov_len || most == 0) break;
    }
  }
}

inline Bytes bytes_of(Outgoing out) {
  const auto size = out.size();
  Bytes stream;
  write_some(out, stream, size);
  EXPECT_TRUE(out.done());
  EXPECT_EQ(stream.size(), size);
  return stream;
}
inline Bytes bytes_of(Message message) { return bytes_of(outgoing(std::move(message))); }

/// Reads what may be one message, as a socket that gives `step` bytes at a time would.
inline base::Status read_all(Incoming& in, std::span<const char> stream, size_t step) {
  while (!stream.empty() && !in.complete()) {
    const auto target = in.target();
    const auto n = std::min({target.size(), stream.size(), step});
    std::memcpy(target.data(), stream.data(), n);
    stream = stream.subspan(n);
    if (auto status = in.filled(n); !status.ok()) return status;
  }
  EXPECT_TRUE(stream.empty()) << stream.size() << " bytes too many";
  return {};
}

inline Message message_of(const Bytes& stream, const Limits& limits = {}, size_t step = SIZE_MAX) {
  Incoming in(limits, BufferPool::make(1 << 20));
  const auto status = read_all(in, stream, step);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(in.complete());
  return in.complete() ? in.take() : Message();
}

inline at::Tensor round_trip(const at::Tensor& tensor) {
  return message_of(bytes_of(with_tensors({tensor}))).tensors.at(0);
}

/// Why the bytes were refused; empty if they were not.
inline std::string refusal(const Bytes& stream, const Limits& limits = {}) {
  Incoming in(limits, BufferPool::make(1 << 20));
  const auto status = read_all(in, stream, SIZE_MAX);
  EXPECT_TRUE(status.ok() || status.code() == base::Code::Protocol);
  return status.message();
}

}  // namespace farad::wire::test
