// The same comes of every algorithm, to the bit; whatever the size, the dtype and the number of members.

#include "suites/collectives_algorithms.h"

#include <atomic>

#include "collectives/operations.h"
#include "collectives/reduction.h"
#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using collectives::Algorithms;
using collectives::Ticket;
using namespace std::chrono_literals;

/// Sums of these depend on their order, where they are of floating point.
Tensor awkward(int64_t elements, int rank, at::ScalarType type) {
  const auto numbers = at::arange(elements, at::kDouble).mul(0.37).add(1.1 * rank).sin().mul(3 + rank).add(0.1);
  return at::isIntegralType(type, true) ? numbers.mul(5).to(type) : numbers.to(type);
}

}  // namespace

TEST_P(CollectivesSuite, EveryAlgorithmGivesTheSameBits) {
  for (const int size : {1, 2, 3, 4, 5}) {
    auto workers = start(size);
    for (const auto& choice : algorithm_choices) {
      workers.each([&](Worker& worker) {
        const auto session = session_of(worker, choice.algorithms);
        for (const int64_t elements : {0, 1, 3, 97}) {
          for (const auto type : {at::kFloat, at::kHalf, at::kLong}) {
            Tensors inputs;
            for (int rank = 0; rank < size; ++rank) inputs.push_back(awkward(elements, rank, type));
            for (const Op op : every_reduction) {
              if (op == Op::Mean && type == at::kLong) continue;
              const auto got = collectives::all_reduce(Ticket(session), inputs[worker.rank()], op);
              EXPECT_TRUE(at::equal(got, collectives::reduce(inputs, op)))
                  << choice.name << ", " << size << " members, " << elements << " of " << type << ", Op "
                  << static_cast<int>(op);
            }
          }
        }
      });
    }
  }
}

TEST(CollectiveAlgorithms, ARingIsUsedWhereSlicesWouldLeaveAMachineMoreOften) {
  using collectives::ring_is_better;
  EXPECT_FALSE(ring_is_better({"a"}));
  EXPECT_FALSE(ring_is_better({"a", "a", "a", "a"})) << "nothing leaves it";
  EXPECT_FALSE(ring_is_better({"a", "b"}));
  EXPECT_FALSE(ring_is_better({"a", "b", "c", "d"})) << "slices take 2 (n - 1) / n, a ring takes 2";
  EXPECT_FALSE(ring_is_better({"a", "a", "b", "b"})) << "as much";
  EXPECT_TRUE(ring_is_better({"a", "a", "a", "a", "b", "b", "b", "b"})) << "twice instead of four times";
  EXPECT_FALSE(ring_is_better({"a", "b", "a", "b", "a", "b", "a", "b"})) << "it would cross at every member";
}

TEST_P(CollectivesSuite, LongTensorsTakeManyStepsAndMayBeChangedAtOnce) {
  constexpr int64_t elements = 3'000'017;
  auto workers = start(3);
  workers.each([&](Worker& worker) {
    using Large = Algorithms::Large;
    const auto slices = session_of(worker, {.large = Large::Slices}), ring = session_of(worker, {.large = Large::Ring});
    for (int round = 0; round < 4; ++round) {
      auto input = at::arange(elements).add(worker.rank() + round).to(at::kFloat).reshape({1, elements});
      auto expected = at::arange(elements).add(round).to(at::kFloat);
      for (const int rank : {1, 2}) expected = expected + at::arange(elements).add(rank + round).to(at::kFloat);
      const auto got = collectives::all_reduce(Ticket(round % 2 == 0 ? slices : ring), input, Op::Sum);
      input.zero_();  // Nobody sees that.
      ASSERT_EQ(got.sizes(), input.sizes());
      EXPECT_TRUE(at::equal(got[0], expected));
      EXPECT_FALSE(got.requires_grad());
    }
  });
}

TEST_P(CollectivesSuite, MembersWhoseSizesAskForDifferentAlgorithmsHearOfItAtOnce) {
  auto workers = start(3);
  workers.each([&](Worker& worker) {
    farad::Group group(worker);
    const auto large = at::ones({500'000});
    const auto text = message_of<Error>([&] { group.all_reduce(group.rank() == 1 ? large : at::ones({2})); });
    EXPECT_THAT(text, testing::HasSubstr("rank 1 (worker1) called all_reduce(Sum, float32 [500000])"));
    message_of<Error>([&] { group.rank() == 2 ? group.barrier() : (void)group.all_reduce(large); });
    EXPECT_EQ(group.all_reduce(large).sum().item<double>(), 1'500'000) << "the group goes on";
  });
}

TEST_P(CollectivesSuite, ByDoublingTooWhoCallsSomethingElseIsHeardOfByAll) {
  auto workers = start(5);
  workers.each([&](Worker& worker) {
    const auto session = session_of(worker, by_doubling);
    const auto reduce = [&](const Tensor& input) { return collectives::all_reduce(Ticket(session), input, Op::Sum); };
    for (const int odd : {0, 2, 4}) {
      const bool mine = worker.rank() == odd;
      const auto other_size = message_of<Error>([&] { reduce(at::ones({mine ? 3 : 2})); });
      EXPECT_THAT(other_size, testing::HasSubstr("all_reduce(Sum, float32 [3])")) << odd;
      const auto other_call =
          message_of<Error>([&] { mine ? collectives::barrier(Ticket(session)) : (void)reduce(at::ones({2})); });
      EXPECT_THAT(other_call, testing::HasSubstr("barrier")) << odd;
      EXPECT_EQ(reduce(at::ones({2})).sum().item<double>(), 10) << "the group goes on";
    }
  });
}

TEST_P(CollectivesSuite, ByDoublingTooHalvesThatDisagreeFailOnEveryRank) {
  auto workers = start(4);
  workers.each([&](Worker& worker) {
    const auto session = session_of(worker, by_doubling);
    const bool first_half = worker.rank() < 2;
    // Each hears first from its neighbour, who may agree. And one of these sizes would broadcast to the other.
    for (const auto& [one, other] :
         std::vector<std::pair<Tensor, Tensor>>{{at::ones({2}), at::ones({1})}, {at::ones({2, 1}), at::ones({1, 2})}}) {
      message_of<Error>([&] { collectives::all_reduce(Ticket(session), first_half ? one : other, Op::Sum); });
      const auto wanting = first_half ? one.clone().requires_grad_() : other;
      message_of<Error>([&] { collectives::all_reduce(Ticket(session), wanting, Op::Sum); });
    }
    EXPECT_EQ(collectives::all_reduce(Ticket(session), at::ones({2}), Op::Sum).sum().item<double>(), 8);
  });
}

TEST_P(CollectivesSuite, ByDoublingTooWhoDoesNotComeFailsAllOthers) {
  auto workers = start(5);
  workers.each([&](Worker& worker) {
    const auto session = session_of(worker, by_doubling, 2s);
    const auto reduce = [&] { return collectives::all_reduce(Ticket(session), at::ones({2}), Op::Sum); };
    farad::Group together(worker);
    together.barrier();  // So that those who come do so at about the same time.
    if (worker.rank() == 2) {
      (void)session->begin(0);  // What it does instead takes part in nothing.
    } else {
      const auto text = message_of<Timeout>(reduce);
      EXPECT_THAT(text, testing::HasSubstr("did not come in 2 s"));
      if (worker.rank() == 1) {  // It waits for that one.
        EXPECT_THAT(text, testing::HasSubstr("rank 2 (worker2)"));
      }
    }
    together.barrier();
    const auto patient = session_of(worker, by_doubling);
    EXPECT_EQ(collectives::all_reduce(Ticket(patient), at::ones({2}), Op::Sum).sum().item<double>(), 10);
  });
}

TEST_P(CollectivesSuite, ByDoublingTooALostMemberFailsAllOthers) {
  auto workers = start(5);
  std::atomic<int> ready{0}, told{0};
  std::vector<Thread> threads;
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back([&, rank] {
      const auto session = session_of(workers[rank], by_doubling);
      const auto reduce = [&] { return collectives::all_reduce(Ticket(session), at::ones({2}), Op::Sum); };
      EXPECT_NO_THROW(reduce());
      ++ready;
      if (rank == 3) return;
      EXPECT_THAT(message_of<PeerLost>(reduce), testing::HasSubstr("rank 3 (worker3)"));
      ++told;
    });
  }
  EXPECT_TRUE(eventually([&] { return ready == 5; }));
  threads[3].join();
  workers.drop(3);
  for (const int rank : {0, 1, 2, 4}) threads[rank].join();
  EXPECT_EQ(told, 4);
}

}  // namespace farad::test
