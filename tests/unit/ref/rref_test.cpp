#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <farad/fields.h>
#include <farad/rref.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <tuple>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;

/// Neither copied nor sent.
class Engine {
 public:
  explicit Engine(int64_t start) : value_(start) { ++alive; }
  ~Engine() { --alive; }
  Engine(const Engine&) = delete;

  int64_t add(int64_t n) { return value_ += n; }
  int64_t value() const { return value_; }
  int64_t twice() & { return value_ *= 2; }
  int64_t half() const& { return value_ / 2; }
  int64_t next() & noexcept { return ++value_; }
  int64_t last() const& noexcept { return value_ - 1; }
  at::Tensor scaled(const at::Tensor& x) const { return x * value_; }

  static std::atomic<int> alive;

 private:
  int64_t value_;
};
std::atomic<int> Engine::alive{0};

using Owned = std::unique_ptr<Engine>;

Owned make_engine(int64_t start) { return std::make_unique<Engine>(start); }
at::Tensor make_tensor() { return at::ones({3}); }
int64_t size_of(const at::Tensor& tensor) { return tensor.numel(); }
int64_t cannot() { throw std::runtime_error("cannot make it"); }
std::atomic<int> times_run{0};
void run_once() { ++times_run; }
Future<void> run_once_later() { return Worker::current().rpc_async<run_once>(1); }
void cannot_run() { throw std::runtime_error("cannot run"); }
int64_t value_through(RRef<Owned> ref) { return ref.rpc_sync<&Engine::value>(); }
RRef<Owned> pass_back(RRef<Owned> ref) { return ref; }
int64_t value_by_next(RRef<Owned> ref, int64_t hops) {
  auto& worker = Worker::current();
  if (hops == 0) return value_through(ref);
  return worker.rpc_sync<value_by_next>((worker.rank() + 1) % worker.size(), ref, hops - 1);
}
int64_t sum_of(std::map<std::string, std::vector<RRef<Owned>>> all) {
  int64_t sum = 0;
  for (auto& [name, refs] : all) {
    for (auto& ref : refs) sum += ref.rpc_sync<&Engine::value>();
  }
  return sum;
}
int64_t twice(Owned& engine, int64_t n) { return engine->add(n) + engine->add(n); }

struct Engines {
  RRef<Owned> first;
  std::optional<RRef<Owned>> second;
  std::tuple<int64_t, RRef<Owned>> weighted;
  FARAD_FIELDS(first, second, weighted)
};
int64_t sum_of_engines(const Engines& engines) {
  const auto value = [](const RRef<Owned>& engine) { return engine.rpc_sync<&Engine::value>(); };
  const auto& [weight, third] = engines.weighted;
  return value(engines.first) + (engines.second ? value(*engines.second) : 0) + weight * value(third);
}
Engines pass_back_all(Engines engines) { return engines; }

static Door* held;
int64_t hold(int64_t x) {
  held->pass();
  return x;
}

/// Takes as long as its caller is willing to wait.
void until_given_up() {
  eventually([] { return cancelled(); });
}

void run(int size, const std::function<void(Worker&)>& act) {
  {
    Group group = start(size);
    act(group[0]);
  }
  EXPECT_EQ(Engine::alive, 0) << "freed when nobody holds it any more, at the latest when the group ends";
}

RPC_TEST(AValueThatCannotTravelIsUsedWhereItLives) {
  run(2, [](Worker& worker) {
    auto engine = worker.remote<make_engine>("worker1", 5);
    EXPECT_EQ(engine.owner().name, "worker1");
    EXPECT_FALSE(engine.is_owner());
    EXPECT_EQ(engine.rpc_sync<&Engine::add>(2), 7);
    EXPECT_EQ(engine.rpc_async<&Engine::value>().wait(), 7);
    EXPECT_EQ(engine.rpc_sync<twice>(1), 17);
    EXPECT_EQ(engine.rpc_sync<&Engine::half>(), 4);
    EXPECT_EQ(engine.rpc_sync<&Engine::last>(), 8);
    EXPECT_EQ(engine.rpc_sync<&Engine::twice>(), 18);
    EXPECT_EQ(engine.rpc_sync<&Engine::next>(), 19);
    EXPECT_EQ(engine.rpc_sync<&Engine::add>(-10), 9);
    EXPECT_EQ(engine.remote<&Engine::scaled>(at::ones({2})).to_here()[0].item<int64_t>(), 9);
    EXPECT_TRUE(engine.confirmed());
    EXPECT_THAT([&] { engine.local_value(); }, testing::ThrowsMessage<Error>(testing::HasSubstr("worker1")));
  });
}

TEST(RRef, FetchingATensorIsTheSameFunctionInEveryProgram) {
  const detail::FunctionId everywhere{0, 1};
  EXPECT_EQ(detail::RemoteFetch<at::Tensor>::function.id, everywhere);
  EXPECT_EQ(detail::find_function(everywhere), &detail::RemoteFetch<at::Tensor>::function);
}

RPC_TEST(AfterCloseItIsClosedAndNobodyIsLost) {
  Group group = start(2);
  auto ref = group[0].remote<make_tensor>("worker1");
  ref.to_here();
  group.each([](Worker& worker) { EXPECT_NO_THROW(worker.close()); });
  EXPECT_THROW(ref.to_here(), Closed);
  EXPECT_THROW(ref.rpc_async<size_of>().wait(), Closed);
}

RPC_TEST(MakingAtOneselfThatCannotBeginLeavesNothing) {
  Group group = start(2);
  group.each([](Worker& worker) { worker.close(); });
  EXPECT_THROW(group[0].remote<make_tensor>(0), Closed);
  EXPECT_TRUE(group[0].debug().empty());
}

RPC_TEST(OutlivesItsWorkerAndNamesTheOwner) {
  RRef<at::Tensor> kept;
  run(2, [&](Worker& worker) {
    kept = worker.remote<make_tensor>("worker1");
    kept.to_here();
  });
  EXPECT_EQ(kept.owner().name, "worker1");
  EXPECT_THAT([&] { kept.to_here(); }, testing::ThrowsMessage<Closed>(testing::AllOf(testing::HasSubstr("to_here"),
                                                                                     testing::HasSubstr("worker1"))));
}

RPC_TEST(ItIsFreedWhenTheLastHandleGoes) {
  run(2, [](Worker& worker) {
    auto engine = worker.remote<make_engine>("worker1", 5);
    auto copy = engine;
    engine.rpc_sync<&Engine::value>();
    EXPECT_EQ(Engine::alive, 1);
    engine = {};
    EXPECT_EQ(copy.rpc_sync<&Engine::value>(), 5);
    copy = {};
    EXPECT_TRUE(eventually([] { return Engine::alive == 0; }));
  });
}

RPC_TEST(ItIsFreedAlsoIfTheCallItWasLentToWasTakenBack) {
  run(2, [](Worker& worker) {
    auto mine = RRef<Owned>::local(worker, make_engine(5));
    const auto large = at::ones({16 << 20});
    // More than is written at once, so it is on its way still when it changes.
    auto call = worker.rpc_async<[](const RRef<Owned>&, const at::Tensor&) {}>("worker1", mine, large);
    large.add_(1);
    try {
      call.wait();  // Where messages are copied.
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("was changed while being sent"));
    }
    mine = {};
    EXPECT_TRUE(eventually([] { return Engine::alive == 0; }));
  });
}

RPC_TEST(ToHereCopiesTheValue) {
  run(2, [](Worker& worker) {
    auto ref = worker.remote<make_tensor>("worker1");
    auto first = ref.to_here();
    first.mul_(7);
    EXPECT_EQ(ref.to_here()[0].item<float>(), 1) << "a copy";
  });
}

RPC_TEST(ToHereWaitsNoLongerThanItIsTold) {
  Door here;
  held = &here;
  Group group = start(2);
  const auto ref = group[0].remote<hold>("worker1", 5);
  for (int use = 0; use < 2; ++use) {
    EXPECT_THAT(
        message_of<Timeout>([&] { ref.to_here(20ms); }),
        testing::AllOf(testing::HasSubstr("to_here"), testing::HasSubstr("worker1"), testing::HasSubstr("20 ms")));
  }
  here.open();
  EXPECT_EQ(ref.to_here(20s), 5) << "it is the waiting that was given up, not the value";
}

RPC_TEST(WhatIsMadeAtOneselfIsWaitedForAndConfirmedWhenItIsThere) {
  Door here;
  held = &here;
  Group group = start(2);
  const auto mine = group[0].remote<hold>(0, 5), other = group[0].remote<hold>(1, 6);
  ASSERT_TRUE(here.has_come(2));
  EXPECT_TRUE(mine.is_owner());
  EXPECT_FALSE(mine.confirmed());
  EXPECT_FALSE(other.confirmed());

  Thread opening([&] { here.open(); });

  EXPECT_EQ(mine.local_value(), 5);
  EXPECT_TRUE(mine.confirmed());
  EXPECT_TRUE(eventually([&] { return other.confirmed(); }));
  opening.join();
}

RPC_TEST(WhatFailedToBeMadeAtOneselfThrowsThatAtEachUse) {
  Group group = start(1);
  const auto mine = group[0].remote<cannot>(0);
  for (int use = 0; use < 2; ++use) {
    EXPECT_THAT([&] { mine.local_value(); }, testing::ThrowsMessage<std::runtime_error>("cannot make it"));
    EXPECT_THROW(mine.to_here(), RemoteError);
  }
  EXPECT_TRUE(mine.confirmed());
}

RPC_TEST(WhatHasNoResultIsReferredToAsWell) {
  run(2, [](Worker& worker) {
    times_run = 0;
    const RRef<void> done = worker.remote<run_once>(1);
    done.to_here();
    EXPECT_EQ(times_run, 1);
    EXPECT_EQ(done.owner().rank, 1);
    worker.remote<run_once_later>(0).to_here();
    EXPECT_EQ(times_run, 2);
    const auto failed = worker.remote<cannot_run>(1);
    for (int use = 0; use < 2; ++use) EXPECT_THROW(failed.to_here(), RemoteError);
  });
}

RPC_TEST(ReferencesTravelToThirdWorkersAndBackAndInCircles) {
  run(3, [](Worker& worker) {
    auto engine = worker.remote<make_engine>("worker1", 5);
    EXPECT_EQ(worker.rpc_sync<value_through>("worker2", engine), 5);
    EXPECT_EQ(worker.rpc_sync<value_through>("worker1", engine), 5) << "to its owner";
    EXPECT_EQ(worker.rpc_sync<value_through>("worker0", engine), 5) << "to oneself";
    EXPECT_EQ(worker.rpc_sync<pass_back>("worker2", engine).rpc_sync<&Engine::value>(), 5);
    EXPECT_EQ(worker.rpc_sync<pass_back>("worker1", engine).rpc_sync<&Engine::value>(), 5);
    EXPECT_EQ(worker.rpc_sync<value_by_next>("worker1", engine, 10), 5);
    const std::map<std::string, std::vector<RRef<Owned>>> several{{"a", {engine, engine}}, {"b", {engine}}};
    EXPECT_EQ(worker.rpc_sync<sum_of>("worker2", several), 15);
  });
}

RPC_TEST(ReferencesTravelInStructsOptionalsAndTuples) {
  run(3, [](Worker& worker) {
    const auto one = worker.remote<make_engine>("worker1", 1), two = worker.remote<make_engine>("worker2", 2);
    for (const int to : {0, 1, 2}) {
      EXPECT_EQ(worker.rpc_sync<sum_of_engines>(to, Engines{one, two, {10, one}}), 13) << to;
      EXPECT_EQ(worker.rpc_sync<sum_of_engines>(to, Engines{two, std::nullopt, {10, two}}), 22) << to;
      const auto back = worker.rpc_sync<pass_back_all>(to, Engines{one, two, {3, two}});
      EXPECT_EQ(sum_of_engines(back), 9) << to;
      EXPECT_EQ(back.second->owner().name, "worker2");
    }
  });
}

RPC_TEST(WhoMadeItMayLetGoWhileOthersUseIt) {
  run(3, [](Worker& worker) {
    std::vector<Future<int64_t>> values;
    for (int i = 0; i < 20; ++i) {
      values.push_back(worker.rpc_async<value_by_next>("worker2", worker.remote<make_engine>("worker1", i), 4));
    }
    for (int i = 0; i < 20; ++i) EXPECT_EQ(values[i].wait(), i);
    EXPECT_TRUE(eventually([] { return Engine::alive == 0; }));
  });
}

RPC_TEST(ErrorsOfTheMakingShowAtEveryUseOnEveryHolder) {
  run(3, [](Worker& worker) {
    auto ref = worker.remote<cannot>("worker1");
    for (int i = 0; i < 2; ++i) {
      try {
        ref.to_here();
        FAIL();
      } catch (const RemoteError& error) {
        EXPECT_EQ(error.type(), "std::runtime_error");
        EXPECT_EQ(error.text(), "cannot make it");
      }
    }
    EXPECT_THROW((worker.rpc_sync<[](RRef<int64_t> r) { return r.to_here(); }>("worker2", ref)), RemoteError);
  });
}

RPC_TEST(TwoMakingsThatTimeOutBothFail) {
  run(2, [](Worker& worker) {
    auto hurried = worker.with({.timeout = 20ms});
    auto one = hurried.remote<[] {
      until_given_up();
      return 1;
    }>("worker1");
    auto two = hurried.remote<[] {
      until_given_up();
      return 2;
    }>("worker1");
    // Once the time of its making is up; a use that is under way by then may still get the value, or hear from the
    // owner that the making was given up before it began.
    const auto fails = [](const auto& ref) {
      try {
        ref.to_here();
        return false;
      } catch (const Timeout&) {
        return true;
      } catch (const RemoteError&) {
        return false;
      }
    };
    EXPECT_TRUE(eventually([&] { return fails(one); }));
    EXPECT_TRUE(eventually([&] { return fails(two); }));
    EXPECT_TRUE(fails(one) && fails(two)) << "each time";
  });
}

RPC_TEST(AnOwnValueIsReachedDirectlyAndByOthers) {
  run(2, [](Worker& worker) {
    auto mine = RRef<Owned>::local(worker, make_engine(3));
    EXPECT_TRUE(mine.is_owner());
    mine.local_value()->add(1);
    EXPECT_EQ(worker.rpc_sync<value_through>("worker1", mine), 4);
    EXPECT_EQ(mine.rpc_sync<&Engine::value>(), 4);
  });
}

RPC_TEST(AReferenceOutlivesItsWorker) {
  RRef<Owned> left;
  {
    Group group = start(2);
    left = group[0].remote<make_engine>("worker1", 5);
    left.rpc_sync<&Engine::value>();
  }
  EXPECT_THROW(left.rpc_sync<&Engine::value>(), Error);
}

}  // namespace
}  // namespace farad::test
