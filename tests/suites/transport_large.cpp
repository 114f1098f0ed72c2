// One message of more than 2 GiB: no length on its way may be 32 bits wide.

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <fstream>

#include "net/sim/world.h"
#include "suites/transport_suite.h"

namespace farad::test {
namespace {

using base::Rank;

size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    size_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

class LargeMessage : public testing::TestWithParam<std::string> {};

TEST_P(LargeMessage, OfMoreThanTwoGigabytesArrives) {
  // The source, what arrives, and in simulation the frame between them.
  if (available_bytes() < size_t{8} << 30) GTEST_SKIP() << "needs 8 GiB of free memory";
  constexpr int64_t count = (int64_t{2} << 30) / 8 + 3;
  const auto test = [](Workers& workers) {
    wire::Message message;
    message.tensors.push_back(at::arange(0, count, at::kLong));
    bool right = true;
    workers.heard(1).at_message = [&](net::Peer, const wire::Message& arrived) {
      const auto& tensor = arrived.tensors.at(0);
      constexpr int64_t step = 1 << 24;
      right = tensor.numel() == count;
      for (int64_t at = 0; at < count && right; at += step) {
        const auto piece = tensor.narrow(0, at, std::min(step, count - at));
        right = at::equal(piece, at::arange(at, at + piece.numel(), at::kLong));
      }
    };
    workers.heard(1).keep_messages = false;

    workers[0].send(Rank(1), std::move(message));

    ASSERT_TRUE(workers.wait_until(1, [](const Recorder& heard) { return heard.messages() == 1; }));
    EXPECT_TRUE(right);
  };
  if (GetParam() != "sim") {
    Workers workers(GetParam(), 2, nullptr);
    return test(workers);
  }
  net::sim::World world(1);
  world.run([&] {
    Workers workers("sim", 2, &world);
    test(workers);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, LargeMessage, testing::Values("local", "sim", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
