#include "shm/ring.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

namespace farad::shm {
namespace {

struct Ring {
  Ring() {
    Memory::create("test", RingLayout::total, memory).raise();
    RingWriter::prepare(memory, 0).raise();
    writer = RingWriter(&memory, 0);
    reader = RingReader(&memory, 0);
  }
  size_t write(const std::string& bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    return writer.write({&piece, 1});
  }
  std::string read() {
    std::string all;
    while (true) {
      std::span<const char> bytes;
      reader.peek(bytes).raise();
      if (bytes.empty()) return all;
      all.append(bytes.data(), bytes.size());
      reader.consume(bytes.size());
    }
  }
  RingState& state() { return *static_cast<RingState*>(memory.data()); }

  Memory memory;
  RingWriter writer;
  RingReader reader;
};

TEST(Ring, CarriesWhatIsWrittenInPieces) {
  Ring ring;
  std::string a = "hello ", b = "world";
  const iovec pieces[] = {{a.data(), a.size()}, {b.data(), b.size()}};
  EXPECT_EQ(ring.writer.write(pieces), 11u);
  EXPECT_EQ(ring.read(), "hello world");
  EXPECT_EQ(ring.read(), "");
}

TEST(Ring, UsesLittleMemoryUntilItIsFull) {
  Ring ring;
  ring.write(std::string(RingLayout::small_bytes, 'x'));
  EXPECT_EQ(ring.state().grown_at.load(), UINT64_MAX);
  ring.write("y");
  EXPECT_EQ(ring.state().grown_at.load(), RingLayout::small_bytes);
  EXPECT_EQ(ring.read(), std::string(RingLayout::small_bytes, 'x') + "y");
}

TEST(Ring, TakesNoMoreThanFits) {
  Ring ring;
  const size_t most = RingLayout::small_bytes + RingLayout::large_bytes;
  size_t written = ring.write(std::string(RingLayout::small_bytes, 'x'));
  written += ring.write(std::string(2 * most, 'y'));
  EXPECT_EQ(written, most);
  EXPECT_EQ(ring.write("z"), 0u);
  EXPECT_TRUE(ring.writer.wait_for_room());
  EXPECT_EQ(ring.read().size(), most);
}

TEST(Ring, TellsTheWriterOnceHalfIsFreeAndOnlyThen) {
  Ring ring;
  ring.write(std::string(RingLayout::small_bytes, 'x'));
  ring.write(std::string(RingLayout::large_bytes, 'y'));
  ASSERT_TRUE(ring.writer.wait_for_room());
  std::span<const char> bytes;
  ring.reader.peek(bytes).raise();
  EXPECT_FALSE(ring.reader.consume(RingLayout::small_bytes));
  ring.reader.peek(bytes).raise();
  EXPECT_FALSE(ring.reader.consume(RingLayout::large_bytes / 2 - 1));
  EXPECT_TRUE(ring.reader.consume(1));
  EXPECT_FALSE(ring.reader.consume(1)) << "told once";
  EXPECT_FALSE(ring.writer.wait_for_room()) << "there is room";
}

TEST(Ring, NumbersThatMakeNoSenseAreAnError) {
  Ring ring;
  ring.state().written.store(uint64_t{1} << 40);
  std::span<const char> bytes;
  EXPECT_EQ(ring.reader.peek(bytes).code(), base::Code::Protocol);

  Ring second;
  second.write("hello");
  second.read();
  second.state().grown_at.store(1);
  second.write("more");
  EXPECT_EQ(second.reader.peek(bytes).code(), base::Code::Protocol);
}

// Random pieces through both areas, wrapping around many times, against what was written.
TEST(RingConcurrency, NothingIsLostOrChangedBetweenTwoThreads) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Ring ring;
  constexpr size_t total = 64 << 20;
  auto byte_at = [](size_t position) { return static_cast<char>(position * 2654435761u >> 13); };
  std::thread writer([&] {
    std::mt19937 random(seed);
    std::vector<char> bytes;
    for (size_t position = 0; position < total;) {
      bytes.resize(std::min<size_t>(1 + random() % (random() % 4 ? 300 : 300'000), total - position));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(position + i);
      size_t done = 0;
      while (done < bytes.size()) {
        const iovec piece{bytes.data() + done, bytes.size() - done};
        const size_t n = ring.writer.write({&piece, 1});
        done += n;
        if (n == 0) std::this_thread::yield();
      }
      position += bytes.size();
    }
  });
  size_t position = 0, wrong = 0;
  while (position < total) {
    std::span<const char> bytes;
    ring.reader.peek(bytes).raise();
    for (char byte : bytes) wrong += byte != byte_at(position++);
    bytes.empty() ? std::this_thread::yield() : (void)ring.reader.consume(bytes.size());
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace farad::shm
