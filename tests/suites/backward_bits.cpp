// Passes that give the same bits each time.

#include <cmath>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

static Tensor weights;  // At whoever uses them.

constexpr int64_t calls = 17;
/// Of each round. They are there before the workers and until after them: that a call orders what happens before and
/// after it, ThreadSanitizer does not see through a ring or a socket.
static std::vector<std::vector<Promise<void>>> turns;

/// Ends when it is its turn, so that results go back in another order than calls came.
Tensor weigh_in_turn(int64_t round, int64_t mine, Tensor x) {
  turns[round][mine].future().wait();
  const Tensor y = x * weights;
  turns[round][mine + 1].set_value();
  return y;
}
Tensor weigh_in_turn_at(int to, int64_t round, int64_t mine, Tensor x) {
  return Worker::current().rpc_sync<weigh_in_turn>(to, round, mine, x);
}

/// Sums of terms of very different size, in which the order shows; `stride`: in which order the calls end.
Tensor rough_gradient(Group& group, int64_t round, int64_t stride, const BackwardOptions& options) {
  weights = at::arange(9, at::kFloat).reshape({3, 3}).div(7).add(0.1).requires_grad_();
  const Tensor a = at::arange(9, at::kFloat).reshape({3, 3}).div(3).add(0.3).requires_grad_();
  turns[round][0].set_value();
  Context context(group[0]);
  std::vector<Future<Tensor>> results;
  for (int64_t i = 0; i < calls; ++i) {
    results.push_back(
        group[0].rpc_async<weigh_in_turn_at>("worker1", 2, round, i * stride % calls, a * std::pow(1.9, i)));
  }
  Tensor loss = at::zeros({});
  for (auto& result : results) loss = loss + (result.wait() / 3).sum();
  context.backward({loss}, options);
  return at::cat({context.gradient(a), gradient_at(group[2], context, weights)});
}

TEST_P(BackwardSuite, DeterministicPassesGiveTheSameBitsInWhicheverOrderCallsEnd) {
  turns.clear();
  for (int64_t round = 0; round <= calls; ++round) turns.emplace_back(calls + 1);
  Group group = start(3);
  const Tensor first = rough_gradient(group, 0, 1, {.deterministic = true});
  for (int64_t stride = 1; stride < calls; ++stride) {
    const auto mode = stride % 2 ? Mode::Fast : Mode::Smart;
    expect_equal(rough_gradient(group, stride, stride, {.mode = mode, .deterministic = true}), first);
  }
  EXPECT_TRUE(at::allclose(rough_gradient(group, calls, 3, {}), first));
}

}  // namespace
}  // namespace farad::test
