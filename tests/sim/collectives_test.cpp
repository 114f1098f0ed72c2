// Groups on a network that delays and reorders, and whose workers crash at any instant that a seed finds.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <farad/autograd.h>
#include <farad/collectives.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/operations.h"
#include "sim/simulation.h"
#include "suites/collectives_operations.h"
#include "suites/seeds.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

Tensor numbers(int rank, int which) { return at::arange(3, at::kDouble) + rank + 0.1 * which; }

/// Operations without a pause, and then a pass over all of them; the same at each member.
void compute(Worker& worker, int operations) {
  farad::Group group(worker);
  const int rank = group.rank();
  const int size = group.size();
  Context context(worker);
  auto x = numbers(rank, 0).requires_grad_();
  Tensor loss = at::zeros({}, at::kDouble);
  std::vector<Future<Tensor>> sums;
  for (int i = 0; i < operations; ++i) sums.push_back(group.all_reduce_async(x * (i + 1)));
  Tensor all = at::zeros({3}, at::kDouble);
  for (int other = 0; other < size; ++other) all = all + numbers(other, 0);
  for (int i = 0; i < operations; ++i) {
    const auto sum = sums[i].wait();
    EXPECT_TRUE(at::allclose(sum, all * (i + 1)));
    if (i % size == rank) loss = loss + sum.sum();  // The others' passes do not come here.
  }
  const auto shifted = group.shift(x, 1);
  EXPECT_TRUE(at::allclose(shifted, numbers((rank + size - 1) % size, 0)));
  loss = loss + (shifted * (rank + 1)).sum();
  context.backward({loss});
  // What each sum was multiplied with, for whoever used it; and the weight of the next member.
  const double expected = operations * (operations + 1) / 2. + (rank + 1) % size + 1;
  EXPECT_TRUE(at::allclose(context.gradient(x), at::full({3}, expected, at::kDouble))) << context.gradient(x);
  group.barrier();
}

TEST(SimulatedGroups, ComputeTheSameInWhateverOrderMessagesCome) {
  for_each_seed(150, [](uint64_t seed) {
    Simulation simulation(seed, {.size = 2 + static_cast<int>(seed % 4)});
    simulation.run([](Worker& worker) { compute(worker, 4); });
  });
}

TEST(SimulatedGroups, GiveTheSameGradientsOfEveryOperationInWhateverOrderMessagesCome) {
  for_each_seed(150, [](uint64_t seed) {
    const int size = 2 + static_cast<int>(seed % 4);
    auto operations = all_operations(seed % 3 == 0);
    std::shuffle(operations.begin(), operations.end(), std::mt19937_64(seed));
    operations.resize(5);
    std::vector<Expected> expected;
    for (const auto& operation : operations) expected.push_back(in_one_process(operation, size));
    Simulation simulation(seed, {.size = size});
    simulation.run([&](Worker& worker) {
      farad::Group group(worker);
      const int rank = group.rank();
      Context context(worker);
      // It must lead somewhere, also where a member has no part in the results.
      Tensor loss = at::zeros({}, at::kDouble).requires_grad_();
      std::vector<Tensors> inputs;
      for (const auto& operation : operations) {
        inputs.push_back(leaves(operation.inputs(rank, size)));
        loss = loss + loss_of(operation.together(group, inputs.back()), rank);
      }
      context.backward({loss});
      for (size_t i = 0; i < operations.size(); ++i) {
        Tensors gradients;
        for (const auto& input : inputs[i]) gradients.push_back(context.gradient(input));
        expect_same(gradients, expected[i].first[rank], 1e-12, operations[i].name);
      }
      group.barrier();
    });
  });
}

/// What passes of one context share with the test; of the simulation that runs.
struct {
  Context* context;
  Tensor leaf;
  Tensors losses;
} at_once;

Tensor ship(Tensor x) { return farad::Group(Worker::current()).send(x * x, 1); }
Tensor unload() { return farad::Group(Worker::current()).recv(0); }

/// The second derivative tells of the first one's, too.
double derive(int which) {
  const auto mode = c10::AutoGradMode(true);
  const auto slope = grad(*at_once.context, {at_once.losses[which]}, {at_once.leaf}, {.create_graph = true})[0];
  const auto again = grad(*at_once.context, {(slope * slope).sum()}, {at_once.leaf}, {.retain_graph = true})[0];
  return slope.item<double>() + 1000 * again.item<double>();
}

TEST(SimulatedGroups, PassesOfOneContextThatRunAtOnceKeepTheGradientsOfMessagesApart) {
  for_each_seed(100, [](uint64_t seed) {
    Simulation simulation(seed, {.size = 2, .worker = {.threads = 4}});
    simulation.run([](Worker& worker) {
      if (worker.rank() != 0) return;
      constexpr int passes = 3;
      auto x = at::full({}, 2., at::kDouble).requires_grad_();
      Context context(worker);
      auto sent = worker.rpc_async<ship>(0, x);
      const auto received = worker.rpc_sync<unload>(1);
      const auto token = sent.wait().sum();
      at_once = {&context, x, {}};
      for (int which = 0; which < passes; ++which) at_once.losses.push_back(received * (which + 1) + token);
      std::vector<Future<double>> slopes;
      {
        const c10::NoGradGuard not_recorded;
        for (int which = 0; which < passes; ++which) slopes.push_back(worker.rpc_async<derive>(0, which));
      }
      // Of w x^2 it is 2 w x, and of the square of that 8 w^2 x.
      for (int which = 0; which < passes; ++which) {
        const double weight = which + 1;
        EXPECT_DOUBLE_EQ(slopes[which].wait(), 4 * weight + 1000 * 16 * weight * weight);
      }
      at_once = {};
    });
  });
}

constexpr int members = 4;

/// One of them crashes while all of them go on with `operation`; the others hear of it, and compute without it.
void lose_one(uint64_t seed, const std::function<std::function<void()>(Worker&)>& operation) {
  const int victim = static_cast<int>(seed % members);
  Simulation simulation(seed, {.size = members});
  int survivors = 0;
  simulation.run(
      [&](Worker& worker) {
        const auto operate = operation(worker);
        try {
          for (int i = 0; i < 100'000; ++i) operate();
          ADD_FAILURE() << "worker" << worker.rank() << " has not heard of the crash";
        } catch (const PeerLost&) {
        } catch (const Aborted& aborted) {  // A pass, which says why.
          EXPECT_THAT(aborted.what_without_backtrace(),
                      AllOf(HasSubstr("(worker" + std::to_string(victim) + ")"), HasSubstr("is lost")));
        }
        std::vector<int> left;
        for (int rank = 0; rank < members; ++rank) {
          if (rank != victim) left.push_back(rank);
        }
        // A group that has never had to do with it finds out as well.
        EXPECT_THROW(farad::Group(worker).recv(victim), PeerLost);
        farad::Group next(worker, left);
        EXPECT_EQ(next.all_reduce(at::ones({})).item<double>(), members - 1);
        ++survivors;
      },
      [&] {
        simulation.pass(simulation.random().between(1us, 12ms));
        const bool process = simulation.random().chance(0.7);
        simulation.crash(victim, process ? net::sim::Death::OfProcess : net::sim::Death::OfMachine);
      });
  EXPECT_EQ(survivors, members - 1);
}

TEST(SimulatedGroups, SurvivorsOfACrashHearOfItAndGoOn) {
  for_each_seed(150, [](uint64_t seed) {
    lose_one(seed, [](Worker& worker) {
      const auto group = std::make_shared<farad::Group>(worker);
      return [group] { group->all_reduce(numbers(group->rank(), 0)); };
    });
  });
}

TEST(SimulatedGroups, SurvivorsOfACrashInPassesOfTheirContextsHearOfItAndGoOn) {
  for_each_seed(100, [](uint64_t seed) {
    lose_one(seed, [](Worker& worker) {
      const auto group = std::make_shared<farad::Group>(worker);
      return [group, &worker] {
        auto x = numbers(group->rank(), 0).requires_grad_();
        Context context(worker);
        const auto sum = group->all_reduce(x);
        context.backward({sum.sum()});
        EXPECT_TRUE(at::equal(context.gradient(x), at::full({3}, members, at::kDouble)));
      };
    });
  });
}

TEST(SimulatedGroups, SurvivorsOfACrashBetweenTheStepsOfAReductionHearOfItAndGoOn) {
  for_each_seed(100, [](uint64_t seed) {
    lose_one(seed, [seed](Worker& worker) {
      collectives::Algorithms algorithms{.slices_from = 0, .slice_bytes = 16};
      if (seed % 3 == 0) algorithms.large = collectives::Algorithms::Large::Ring;
      const auto session = detail::WorkerCore::of(worker).groups().make({0, 1, 2, 3}, worker.rank(), 30s, algorithms);
      return [session] {
        const auto sum = collectives::all_reduce(collectives::Ticket(session), at::ones({37}), Op::Sum);
        EXPECT_TRUE(at::equal(sum, at::full({37}, members)));
      };
    });
  });
}

}  // namespace
}  // namespace farad::test
