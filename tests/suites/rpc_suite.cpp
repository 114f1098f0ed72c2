#include "suites/rpc_suite.h"

#include <atomic>
#include <thread>
#include <utility>

namespace farad::test {

using namespace std::chrono_literals;

namespace {

std::string new_meeting() {
  static std::atomic<int> number{0};
  return "local://rpc-suite-" + std::to_string(number++);
}

constexpr auto too_long = 30s;

}  // namespace

Group::Group(const std::string& transport, int size, WorkerOptions options) {
  options.transport = transport;
  options.size = size;
  options.rendezvous = new_meeting();
  workers_.resize(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([this, rank, mine = options]() mutable {
      mine.rank = rank;
      workers_[rank] = std::make_unique<Worker>(Worker::join(std::move(mine)));
    });
  }
  for (auto& thread : threads) thread.join();
}

Group::~Group() {
  each([](Worker& worker) {
    try {
      worker.close();
    } catch (const PeerLost&) {  // Tests that drop workers say themselves what is to be seen of it.
    }
  });
}

Worker Group::take(int rank) {
  Worker taken = std::move(*workers_[rank]);
  workers_[rank].reset();
  return taken;
}

void Group::each(const std::function<void(Worker&)>& act) {
  std::vector<std::thread> threads;
  for (auto& worker : workers_) {
    if (worker) threads.emplace_back([&act, &worker] { act(*worker); });
  }
  for (auto& thread : threads) thread.join();
}

bool Door::has_come(int count) {
  const auto deadline = std::chrono::steady_clock::now() + too_long;
  while (count > 0 && came_.try_acquire_until(deadline)) --count;
  return count == 0;
}

bool eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + too_long;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RpcSuite);  // Programs of suites on top of it have no test of it.
INSTANTIATE_TEST_SUITE_P(Each, RpcSuite, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace farad::test
