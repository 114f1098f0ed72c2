// What comes of a member that does not keep to the protocol: it is named, and nothing is read that was not sent.

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "collectives/operations.h"
#include "collectives/steps.h"
#include "suites/collectives_algorithms.h"
#include "suites/collectives_suite.h"
#include "wire/dtype.h"

namespace farad::test {
namespace {

using collectives::Algorithms;
using collectives::Letter;
using collectives::Session;
using testing::HasSubstr;

constexpr int64_t elements = 1000;

/// What one member of two sends the other, in which meeting of an all_reduce; whatever it says it is.
struct Forgery {
  uint64_t meeting;
  Tensor tensor;
  bool requires_grad = false;
};

void send(const std::shared_ptr<Session>& session, const collectives::Path& operation, const Forgery& forgery) {
  collectives::Signature signature{collectives::Operation::AllReduce, 0, 0, wire::dtype_to_wire(at::kFloat), {}, false};
  if (forgery.meeting == collectives::first_meeting) signature.shapes = {{elements}};
  auto path = operation;
  path.push_back(forgery.meeting);
  auto sent = session->attend({path, signature, {forgery.tensor, {}}, {forgery.requires_grad, false}, {0}, {}});
  sent.wait().status.raise();
}

}  // namespace

TEST_P(CollectivesSuite, AMemberThatSendsLessThanItSaysIsNamed) {
  struct Case {
    const char* name;
    Algorithms algorithms;
    std::vector<Forgery> sends;
  };
  const auto few = at::ones({3}), half = at::ones({elements / 2});
  const Algorithms ring{.slices_from = 0, .large = Algorithms::Large::Ring};
  const Case cases[] = {
      {"a slice", {.slices_from = 0}, {{0, few}}},
      {"a reduced slice", {.slices_from = 0}, {{0, half}, {2, few}}},
      {"a reduced slice, past the cache", {.slices_from = 0, .stream_from = 0}, {{0, half}, {2, few}}},
      {"a slice of another dtype", {.slices_from = 0}, {{0, half.to(at::kByte)}}},
      {"no slice at all", {.slices_from = 0}, {{0, {}}}},
      {"a piece of a ring", ring, {{0, {}}, {5, few}}},
      {"a round of doubling", by_doubling, {{0, few.view({1, 3})}}},
  };
  auto workers = start(2);
  for (const auto& each : cases) {
    workers.each([&](Worker& worker) {
      const auto session = session_of(worker, each.algorithms);
      if (worker.rank() == 1) {
        const auto operation = session->begin(0);
        for (const auto& forgery : each.sends) send(session, operation, forgery);
        worker.barrier();
        session->end(operation);
        return;
      }
      const auto text = message_of<Error>(
          [&] { collectives::all_reduce(collectives::Ticket(session), at::ones({elements}), Op::Sum); });
      EXPECT_THAT(text, HasSubstr("all_reduce(Sum, float32 [1000]), number 0 of group {0, 1}: rank 1 (worker1) sent "))
          << each.name;
      worker.barrier();
    });
  }
}

// The second member does what a sum in slices needs, and nothing else.
TEST_P(CollectivesSuite, ASumThatAGradientGoesThroughTakesTheSameMeetingsAsOneWithout) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    const auto session = session_of(worker, {.slices_from = 0});
    if (worker.rank() == 1) {
      const auto operation = session->begin(0);
      const auto half = at::ones({elements / 2});
      for (const auto& letter : {Forgery{0, half, true}, Forgery{2, half * 2}}) send(session, operation, letter);
      worker.barrier();
      session->end(operation);
      return;
    }
    const auto x = at::ones({elements}).requires_grad_();
    const auto sum = collectives::all_reduce(collectives::Ticket(session), x, Op::Sum);
    EXPECT_TRUE(sum.requires_grad());
    EXPECT_TRUE(at::equal(sum, at::full({elements}, 2.)));
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, AMemberThatRunsFarAheadOfTheOthersGroupsIsRefusedByName) {
  auto workers = start(2);
  // Two letters of 2 GiB, as they look; no such memory is there.
  const auto large = at::ones({1}).expand({int64_t{1} << 29});
  auto& groups = detail::WorkerCore::of(workers[0]).groups();
  for (uint64_t number = 0; number < 2; ++number) {
    Letter letter;
    letter.group = {0, {0, 1}};
    letter.path = {0, number, 0};
    letter.contribution.tensor = large;
    groups.on_message({base::Rank(1), base::Incarnation(1)}, collectives::encode(letter));
  }
  const auto why = HasSubstr("rank 1 (worker1) sent more than 1024 MiB for groups that rank 0 had not made");
  farad::Group theirs(workers[1]);
  EXPECT_THAT(message_of<Error>([&] { theirs.barrier(); }), why);
  farad::Group mine(workers[0]);
  EXPECT_THAT(message_of<Error>([&] { mine.barrier(); }), why);
  farad::Group with_others(workers[0], {0});
  EXPECT_EQ(with_others.all_reduce(at::ones({})).item<double>(), 1);
}

}  // namespace farad::test
