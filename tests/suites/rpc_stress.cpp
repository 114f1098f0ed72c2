// Many threads, every kind of call at once, for a bounded time.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <atomic>
#include <random>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;

int64_t add_one(int64_t x) { return x + 1; }
int64_t relay(int64_t x, int to) { return Worker::current().rpc_sync<add_one>(to, x); }
int64_t hop(int64_t left) {
  auto& worker = Worker::current();
  return left == 0 ? 0 : 1 + worker.rpc_sync<hop>((worker.rank() + 1) % worker.size(), left - 1);
}
Future<int64_t> relay_later(int64_t x, int to) {
  return Worker::current().rpc_async<add_one>(to, x).then([](int64_t y) { return y + 1; });
}
at::Tensor doubled(at::Tensor x) { return x * 2; }
void fails(int64_t x) { throw std::runtime_error(std::to_string(x)); }
void waits_for_the_end() { eventually(cancelled); }

int64_t fetch(const RRef<int64_t>& from) { return from.to_here(); }
int64_t wait_at(int64_t& value) {
  waits_for_the_end();
  return value;
}

static std::atomic<int64_t> heard;
void count(int64_t) { ++heard; }

/// What one thread saw.
struct Tally {
  int64_t calls = 0, wrong = 0, sent = 0;
};

Tally call_around(Worker& worker, uint64_t seed, base::TimePoint until) {
  std::mt19937_64 random(seed);
  Tally tally;
  while (runtime().now() < until) {
    const int to = static_cast<int>(random() % 3), other = static_cast<int>(random() % 3);
    const auto x = static_cast<int64_t>(random() % 1000);
    bool right = true;
    switch (random() % 12) {
      case 0:
        right = worker.rpc_sync<add_one>(to, x) == x + 1;
        break;
      case 1:
        right = worker.rpc_sync<relay>(to, x, other) == x + 1;
        break;
      case 2:
        right = worker.rpc_sync<hop>(to, x % 10) == x % 10;
        break;
      case 3:
        right = worker.rpc_async<relay_later>(to, x, other).wait() == x + 2;
        break;
      case 4: {
        const auto sent = at::full({1 + x * 20}, static_cast<double>(x));
        right = at::equal(worker.rpc_sync<doubled>(to, sent), sent + sent);
        break;
      }
      case 5: {
        std::vector<Future<int64_t>> replies;
        for (int64_t i = 0; i < 20; ++i) replies.push_back(worker.rpc_async<add_one>(to, i));
        for (int64_t i = 0; i < 20; ++i) right = right && replies[i].wait() == i + 1;
        break;
      }
      case 6:
        try {
          worker.rpc_sync<fails>(to, x);
          right = false;
        } catch (const RemoteError& error) {
          right = error.text() == std::to_string(x);
        }
        break;
      case 7: {
        auto reply = worker.with({.timeout = std::chrono::milliseconds(1 + x % 3)}).rpc_async<waits_for_the_end>(to);
        if (x % 2) reply.cancel();
        try {
          reply.wait();
          right = false;
        } catch (const Timeout&) {
        } catch (const Cancelled&) {
        }
        break;
      }
      case 8:
        worker.send<count>(to, x);
        ++tally.sent;
        break;
      case 9:
        right = worker.remote<add_one>(to, x).to_here() == x + 1;
        break;
      case 10:
        right = worker.rpc_sync<fetch>(other, worker.remote<add_one>(to, x)) == x + 1;
        break;
      case 11: {
        // Given up while it may be anywhere: the reference is to live until the call has ended, and no longer.
        auto reply = worker.remote<add_one>(to, x).rpc_async<wait_at>();
        reply.cancel();
        try {
          reply.wait();
          right = false;
        } catch (const Cancelled&) {
        }
        break;
      }
    }
    ++tally.calls;
    tally.wrong += !right;
  }
  return tally;
}

RPC_TEST(TwentyThreadsOfEachOfThreeWorkersMixTheirCalls) {
  constexpr int threads = 3 * 20;
  heard = 0;
  std::vector<Tally> tallies(threads);
  {
    Group group = start(3, {.threads = 2});
    const auto until = runtime().now() + (RpcSuite::GetParam() == "sim" ? 20ms : 1000ms);
    std::vector<Thread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] { tallies[i] = call_around(group[i % 3], static_cast<uint64_t>(i), until); });
    }
    running.clear();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(eventually([&] { return group[rank].debug().empty(); })) << group[rank].debug();
    }
  }
  Tally all;
  for (const auto& tally : tallies) {
    EXPECT_GT(tally.calls, 0);
    all.calls += tally.calls;
    all.sent += tally.sent;
    EXPECT_EQ(tally.wrong, 0);
  }
  EXPECT_EQ(heard, all.sent) << "close waits for calls that nobody waits for";
  testing::Test::RecordProperty("calls", std::to_string(all.calls));
}

}  // namespace
}  // namespace farad::test
