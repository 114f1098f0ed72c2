#include "suites/rpc_suite.h"

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <utility>

#include "base/executor.h"
#include "net/sim/world.h"
#include "suites/seeds.h"
#include "worker_core.h"

namespace farad::test {

using namespace std::chrono_literals;

namespace {

std::string new_meeting() {
  static std::atomic<int> number{0};
  return "local://rpc-suite-" + std::to_string(number++);
}

constexpr auto too_long = 30s;

net::sim::World* world = nullptr;  // Of the test that runs on "sim".

Worker join(WorkerOptions options) {
  return world ? detail::WorkerCore::join_in(*world, std::move(options)) : Worker::join(std::move(options));
}

}  // namespace

base::Runtime& runtime() { return world ? world->runtime() : base::Runtime::real(); }

void RpcSuite::play(const std::function<void()>& test) {
  if (GetParam() != "sim") return test();
  for_each_seed(3, [&](uint64_t seed) {
    net::sim::World simulated(seed);
    world = &simulated;
    const auto end = c10::make_scope_exit([] { world = nullptr; });
    simulated.run(test);
  });
}

Group::Group(const std::string& transport, int size, WorkerOptions options) {
  if (!world) options.transport = transport;
  options.size = size;
  options.rendezvous = new_meeting();
  workers_.resize(size);
  std::vector<Thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([this, rank, mine = options]() mutable {
      mine.rank = rank;
      workers_[rank] = std::make_unique<Worker>(join(std::move(mine)));
    });
  }
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
  std::vector<Thread> threads;
  for (auto& worker : workers_) {
    if (worker) threads.emplace_back([&act, &worker] { act(*worker); });
  }
}

void Door::open() {
  open_.set_value();
  std::vector<std::shared_ptr<base::Parker>> inside;
  {
    const std::lock_guard lock(mutex_);
    inside.swap(inside_);
  }
  for (const auto& parker : inside) parker->unpark();
}

void Door::pass() {
  const std::shared_ptr<base::Parker> parker = runtime().make_parker();
  std::shared_ptr<base::Parker> watcher;
  {
    const std::lock_guard lock(mutex_);
    ++came_;
    inside_.push_back(parker);
    watcher = watcher_;
  }
  if (watcher) watcher->unpark();
  const base::Executor::Waiting waiting;  // As in Future::wait, which would wait by the real clock.
  while (!opened().ready()) parker->park(base::never);
}

bool Door::take(int count) {
  const std::lock_guard lock(mutex_);
  if (came_ < count) return false;
  came_ -= count;
  return true;
}

bool Door::has_come(int count) {
  const auto deadline = runtime().now() + too_long;
  const std::shared_ptr<base::Parker> parker = runtime().make_parker();
  {
    const std::lock_guard lock(mutex_);
    watcher_ = parker;
  }
  while (!take(count)) {
    if (!parker->park(deadline)) return take(count);
  }
  return true;
}

bool eventually(const std::function<bool()>& done) {
  const auto deadline = runtime().now() + too_long;
  const auto parker = runtime().make_parker();
  while (!done()) {
    if (runtime().now() > deadline) return false;
    parker->park(runtime().now() + 100us);
  }
  return true;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RpcSuite);  // Programs of suites on top of it have no test of it.
INSTANTIATE_TEST_SUITE_P(Each, RpcSuite, testing::Values("local", "sim", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace farad::test
