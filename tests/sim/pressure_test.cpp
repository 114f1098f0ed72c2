// A peer that takes nothing in, and is not lost for that.

#include <ATen/Functions.h>
#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sim/simulation.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;

int64_t elements_of(at::Tensor tensor) { return tensor.numel(); }

TEST(SimulatedPressure, CallsKeepTheirTimeWhileTheQueueIsFull) {
  Simulation simulation(1, {.size = 2, .worker = {.lost_after = 0ms, .threads = 2}});
  simulation.run([&](Worker& worker) {
    if (worker.rank() != 0) return;
    const auto large = at::zeros({16 << 20}, at::kByte);
    const auto caller = worker.with({.timeout = 50ms});
    simulation.world().stop(base::Rank(1));

    std::vector<Future<int64_t>> replies;
    const auto fill = [&] {
      for (int i = 0; i < 8; ++i) replies.push_back(caller.rpc_async<elements_of>("worker1", large));
    };
    EXPECT_THROW(fill(), Timeout) << "the queue takes 64 MiB";
    try {
      caller.rpc_sync<elements_of>("worker1", large);
      ADD_FAILURE() << "nobody can have answered";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what_without_backtrace(),
                  testing::AllOf(testing::HasSubstr("elements_of"), testing::HasSubstr("worker1"),
                                 testing::HasSubstr("50 ms")));
    }

    simulation.world().resume(base::Rank(1));
    EXPECT_EQ(worker.rpc_sync<elements_of>("worker1", large), 16 << 20);
  });
}

}  // namespace
}  // namespace farad::test
