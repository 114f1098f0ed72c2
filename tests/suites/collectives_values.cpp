// What operations compute, and what happens if members do not do the same.

#include <c10/core/GradMode.h>

#include <atomic>
#include <memory>

#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

void nothing() {}

WorkerOptions impatient() {
  WorkerOptions options;
  options.rpc_timeout = 1500ms;
  return options;
}

}  // namespace

TEST_P(CollectivesSuite, ComputesWhatOneProcessComputes) {
  for (const int size : sizes()) {
    auto workers = start(size);
    for (const bool uneven : {false, true}) {
      for (const auto& operation : all_operations(uneven)) {
        std::vector<Tensors> inputs;
        for (int rank = 0; rank < size; ++rank) inputs.push_back(operation.inputs(rank, size));
        const auto expected = operation.alone(inputs);
        workers.each([&](Worker& worker) {
          farad::Group group(worker);
          expect_same(operation.together(group, inputs[group.rank()]), expected[group.rank()], 1e-14, operation.name);
        });
      }
    }
  }
}

TEST_P(CollectivesSuite, ReducesEveryDtypeAndLargeTensorsTheSameEverywhere) {
  auto workers = start(3);
  constexpr int64_t large = 100'003;  // In slices, which do not come out even.
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
    Tensors results(3);
    Tensors expected;
    for (int rank = 0; rank < 3; ++rank) {
      const auto whole = at::arange(large, at::kLong).remainder(7 + rank).add(1).to(type);
      expected.push_back(whole);
    }
    workers.each([&](Worker& worker) {
      farad::Group group(worker);
      // Every other element of something twice as long: not contiguous.
      const auto input = at::stack({expected[group.rank()], expected[group.rank()]}, 1).select(1, 0);
      results[group.rank()] = group.all_reduce(input);
      EXPECT_TRUE(at::equal(group.all_reduce(input, Op::Max), at::stack(expected).amax(0)));
    });
    EXPECT_TRUE(at::equal(results[0], expected[0] + expected[1] + expected[2])) << type;
    EXPECT_EQ(results[0].scalar_type(), type);
    EXPECT_TRUE(at::equal(results[0], results[1]) && at::equal(results[0], results[2])) << type;
  }
}

TEST_P(CollectivesSuite, InputsMayBeChangedAndResultsAreNobodyElses) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    for (int i = 0; i < 20; ++i) {
      auto input = at::full({30'000}, double(group.rank() + i));
      auto all = group.all_gather(input);
      input.fill_(-1);
      all[group.rank()].add_(1);
      EXPECT_EQ(input[0].item<double>(), -1);
      for (int other = 0; other < 3; ++other) {
        EXPECT_TRUE(all[other].eq(double(other + i + (other == group.rank()))).all().item<bool>());
      }
    }
  });
}

TEST_P(CollectivesSuite, GroupsOfAnyMembersWorkAtOnce) {
  auto workers = start(4);
  workers.each([](Worker& worker) {
    farad::Group all(worker);
    farad::Group half(worker, worker.rank() % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3});
    farad::Group again(worker);
    EXPECT_EQ(half.size(), 2);
    EXPECT_EQ(half.rank(), worker.rank() == 0 || worker.rank() == 3 ? 1 : 0);
    const auto mine = at::scalar_tensor(worker.rank(), at::kLong);
    auto in_all = all.all_reduce_async(mine);
    auto in_again = again.all_gather_async(mine);
    EXPECT_EQ(half.all_reduce(mine).item<int64_t>(), worker.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(in_again.wait()[3].item<int64_t>(), 3);
    EXPECT_EQ(in_all.wait().item<int64_t>(), 6);
    all.barrier();
  });
}

TEST_P(CollectivesSuite, OperationsWithoutWaitingGoByTheOrderOfTheirCalls) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    std::vector<Future<Tensor>> sums;
    for (int i = 0; i < 30; ++i) sums.push_back(group.all_reduce_async(at::full({3}, double(i))));
    for (int i = 0; i < 30; ++i) EXPECT_EQ(sums[i].wait()[0].item<double>(), 3 * i);
  });
}

TEST_P(CollectivesSuite, FormsThatDoNotWaitReturnBeforeTheOthersHaveBegun) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker), starts(worker);
    const auto one = at::ones({2});
    const Tensors each{one, one};
    if (group.rank() == 1) {
      starts.recv(0);  // Until then this member has come to none of them.
      group.all_reduce(one);
      group.all_gather(one);
      group.all_gather_cat(one);
      group.reduce_scatter(each);
      group.all_to_all(each);
      group.broadcast(one, 1);
      group.reduce(one, 0);
      group.gather(one, 0);
      group.scatter(each, 1);
      group.send(one, 0);
      group.shift(one, 1);
      group.barrier();
      return;
    }
    auto reduced = group.all_reduce_async(one);
    auto all = group.all_gather_async(one);
    auto together = group.all_gather_cat_async(one);
    auto share = group.reduce_scatter_async(each);
    auto swapped = group.all_to_all_async(each);
    auto told = group.broadcast_async({}, 1);
    auto at_root = group.reduce_async(one, 0);
    auto gathered = group.gather_async(one, 0);
    auto dealt = group.scatter_async({}, 1);
    auto came = group.recv_async(1);
    auto shifted = group.shift_async(one, 1);
    auto over = group.barrier_async();
    EXPECT_FALSE(reduced.ready() || all.ready() || together.ready() || share.ready() || swapped.ready() ||
                 told.ready() || at_root.ready() || gathered.ready() || dealt.ready() || came.ready() ||
                 shifted.ready() || over.ready());
    starts.send(one, 1);
    for (const auto& result : {reduced.wait(), share.wait(), at_root.wait()}) EXPECT_TRUE(at::equal(result, one * 2));
    for (const auto& result : {told.wait(), dealt.wait(), came.wait(), shifted.wait()}) {
      EXPECT_TRUE(at::equal(result, one));
    }
    EXPECT_EQ(together.wait().numel(), 4);
    for (const auto& results : {all.wait(), swapped.wait(), gathered.wait()}) EXPECT_EQ(results.size(), 2u);
    over.wait();
  });
}

TEST_P(CollectivesSuite, MembersThatDoNotDoTheSameAllHearWhoDidWhat) {
  auto workers = start(3);
  std::atomic<int> told{0};
  workers.each([&](Worker& worker) {
    farad::Group group(worker);
    const auto expect_told = [&](const std::function<void()>& act, const char* one, const char* other) {
      const auto text = message_of<Error>(act);
      EXPECT_THAT(text, HasSubstr(one));
      EXPECT_THAT(text, HasSubstr(other));
      ++told;
    };
    const auto x = at::ones({2});
    expect_told([&] { group.rank() == 1 ? (void)group.all_gather(x) : (void)group.all_reduce(x); },
                "rank 1 (worker1) called all_gather(float32 [2])", "called all_reduce(Sum, float32 [2])");
    expect_told([&] { group.all_reduce(at::ones({group.rank() == 2 ? 3 : 2})); },
                "rank 2 (worker2) called all_reduce(Sum, float32 [3])", "all_reduce(Sum, float32 [2])");
    expect_told([&] { group.all_reduce(x, group.rank() == 0 ? Op::Max : Op::Min); },
                "rank 0 (worker0) called all_reduce(Max", "all_reduce(Min");
    expect_told([&] { group.all_gather(group.rank() == 0 ? x.to(at::kDouble) : x); }, "all_gather(float64 [2])",
                "all_gather(float32 [2])");
    expect_told([&] { group.broadcast(x, group.rank() == 2 ? 2 : 0); }, "broadcast(root 2", "broadcast(root 0");
    expect_told([&] { group.all_gather_cat(at::ones({2, group.rank() == 1 ? 3 : 2})); }, "float32 [2, 3]",
                "float32 [2, 2]");
    // The group goes on.
    EXPECT_EQ(group.all_reduce(x).sum().item<double>(), 6);
  });
  EXPECT_EQ(told, 18);
}

TEST_P(CollectivesSuite, MembersAreNamedByTheirRankAmongAllWorkers) {
  auto workers = start(3, impatient());
  workers.each([](Worker& worker) {
    if (worker.rank() != 1) {
      farad::Group group(worker, {2, 0});
      const auto differ = message_of<Error>([&] { group.all_reduce(at::ones({worker.rank() == 0 ? 3 : 2})); });
      EXPECT_THAT(differ, HasSubstr("rank 0 (worker0) called all_reduce(Sum, float32 [3])"));
      EXPECT_THAT(differ, HasSubstr("rank 2 (worker2) called all_reduce(Sum, float32 [2])"));
      if (worker.rank() == 0) {
        EXPECT_THAT(message_of<Timeout>([&] { group.barrier(); }), HasSubstr(": rank 2 (worker2) did not come"));
      }
    }
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, AMemberThatDoesNotComeIsNamedEverywhere) {
  auto workers = start(3, impatient());
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const auto x = at::ones({2});
    if (group.rank() != 2) {
      const auto text = message_of<Timeout>([&] { group.all_reduce(x); });
      EXPECT_THAT(text, HasSubstr("all_reduce(Sum, float32 [2]), number 0 of group {0, 1, 2}: rank 2 (worker2)"));
      EXPECT_THAT(text, HasSubstr("did not come in 1500 ms"));
    }
    worker.barrier();
    // It comes at last, and hears at once that the others have gone.
    if (group.rank() == 2) {
      EXPECT_THROW(group.all_reduce(x), Timeout);
    }
    worker.barrier();
    EXPECT_EQ(group.all_reduce(x).sum().item<double>(), 6);
  });
}

TEST_P(CollectivesSuite, AMemberThatComesWithAnotherGroupIsNamedWithWhatItCalledThere) {
  auto workers = start(3, impatient());
  workers.each([](Worker& worker) {
    const auto x = at::ones({2});
    const auto expect_missed = [&](const std::function<void()>& act, const std::string& where) {
      EXPECT_THAT(message_of<Timeout>(act), HasSubstr(where));
    };
    const bool in_pair = worker.rank() < 2;
    // Both groups are there, and one of the two is used by each.
    {
      farad::Group all(worker);
      const auto pair = in_pair ? std::make_unique<farad::Group>(worker, std::vector{0, 1}) : nullptr;
      worker.barrier();
      if (worker.rank() == 0) {
        expect_missed([&] { all.all_reduce(x); }, "rank 1 (worker1) came to barrier(), number 0 of group {0, 1})");
      } else if (worker.rank() == 1) {
        expect_missed([&] { pair->barrier(); },
                      "rank 0 (worker0) came to all_reduce(Sum, float32 [2]), number 0 of group {0, 1, 2})");
      }
      worker.barrier();
    }
    // Each of the two has made one only.
    if (worker.rank() == 0) {
      farad::Group all(worker);
      worker.barrier();
      expect_missed([&] { all.all_reduce(x); },
                    "rank 1 (worker1) came to barrier(), number 0 of a group {0, 1} that was not made here");
    } else if (worker.rank() == 1) {
      farad::Group pair(worker, {0, 1});
      worker.barrier();
      expect_missed([&] { pair.barrier(); },
                    "rank 0 (worker0) came to all_reduce(Sum, float32 [2]), number 0 of a "
                    "group {0, 1, 2} that was not made here");
    } else {
      worker.barrier();
    }
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, AMemberThatIsLostFailsTheOthersAndTheSurvivorsGoOn) {
  auto workers = start(3);
  workers.each([](Worker& worker) { farad::Group(worker).barrier(); });
  std::atomic<int> lost{0};
  Door waiting;
  std::thread killer([&] {
    waiting.has_come(2);
    workers.drop(1);
  });
  for (auto& thread : [&] {
         std::vector<std::thread> threads;
         for (const int rank : {0, 2}) {
           threads.emplace_back([&, rank] {
             farad::Group group(workers[rank]);
             farad::Group pair(workers[rank], {0, 2});
             waiting.open();
             waiting.pass();
             const auto text = message_of<PeerLost>([&] { group.all_reduce(at::ones({2})); });
             EXPECT_THAT(text, HasSubstr("rank 1 (worker1)"));
             EXPECT_THROW(group.barrier(), PeerLost);
             EXPECT_EQ(pair.all_reduce(at::ones({2})).sum().item<double>(), 4);
             ++lost;
           });
         }
         return threads;
       }()) {
    thread.join();
  }
  killer.join();
  EXPECT_EQ(lost, 2);
}

TEST_P(CollectivesSuite, AMemberThatWasLostBeforeIsLostToWhoeverWaitsForIt) {
  auto workers = start(3);
  // One that is still to be read has come before its sender was lost.
  farad::Group(workers[1]).send(at::ones({2}), 0);
  workers[1].rpc_sync<nothing>(0);
  workers.drop(1);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    if (worker.rank() == 0) {
      EXPECT_EQ(group.recv(1).sum().item<double>(), 2);
    }
    // The last one has never had to do with it.
    const auto text = message_of<PeerLost>([&] { group.recv(1); });
    EXPECT_THAT(text, HasSubstr("rank 1 (worker1)"));
    EXPECT_THROW(group.recv_async(1).wait(), PeerLost);
    EXPECT_THROW(group.send(at::ones({2}), 1), PeerLost);
    EXPECT_THROW(group.barrier(), PeerLost);
    farad::Group left(worker, {0, 2});
    EXPECT_EQ(left.all_reduce(at::ones({})).item<double>(), 2);
  });
}

TEST_P(CollectivesSuite, MisuseIsToldBeforeAnythingIsSent) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const auto x = at::ones({2});
    EXPECT_THROW(group.all_reduce(Tensor()), farad::Error);
    EXPECT_THROW(group.all_reduce(at::ones({2}, at::kLong), Op::Mean), farad::Error);
    EXPECT_THROW(group.all_reduce(at::ones({2}, at::kComplexFloat), Op::Max), farad::Error);
    EXPECT_THROW(group.all_to_all({x}), farad::Error);
    EXPECT_THROW(group.broadcast(x, 2), farad::Error);
    EXPECT_THROW(group.send(x, group.rank()), farad::Error);
    EXPECT_THROW(group.all_gather_cat(x, 1), farad::Error);
    EXPECT_THROW(farad::Group(worker, {1 - worker.rank()}), farad::Error);
    EXPECT_THROW(farad::Group(worker, {0, 1, 1}), farad::Error);
    EXPECT_THROW(farad::Group(worker, {0, 2}), farad::Error);
    EXPECT_EQ(group.all_reduce(x).sum().item<double>(), 4);
  });
}

}  // namespace farad::test
