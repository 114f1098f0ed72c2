// What a pass is asked for, and passes beside each other.

#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <thread>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

using Tensors = std::vector<Tensor>;
using testing::AllOf;
using testing::HasSubstr;

static Tensor weights;  // At whoever uses them.

Tensor weigh(Tensor x) { return x * weights; }
Tensor square_at(int to, Tensor x) { return Worker::current().rpc_sync<multiply>(to, x, x); }

// --- Options ---

TEST_P(BackwardSuite, SeveralRootsAddUp) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    const Tensor a = leaf(1), b = leaf(2);
    Context context(group[0]);
    const auto x = group[0].rpc_sync<multiply>("worker1", a, b);
    const auto y = group[0].rpc_sync<square_at>("worker1", 2, a);
    context.backward({x.sum(), y.sum(), x.sum(), a.sum()}, {.mode = mode});
    expect_gradient(context, a, (b * 2 + a * 2 + 1).detach());
    expect_gradient(context, b, (a * 2).detach());
  }
}

TEST_P(BackwardSuite, RootsBeginWithTheGradientsTheyAreGiven) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor a = leaf(1), b = leaf(2), seed = leaf(5).detach();
    Context context(group[0]);
    const auto x = group[0].rpc_sync<multiply>("worker1", a, b);
    context.backward({x, a.sum()}, {.grad_tensors = {seed, {}}, .mode = mode});
    expect_gradient(context, a, (b * seed + 1).detach());
    expect_gradient(context, b, (a * seed).detach());
    EXPECT_TRUE(at::equal(seed, leaf(5).detach())) << "what was given is not added to";
  }
}

TEST_P(BackwardSuite, InputsKeepGradientsFromAllOtherLeaves) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    weights = leaf(3);
    const Tensor a = leaf(1), b = leaf(2);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<weigh>("worker1", a * b);
    context.backward({y.sum()}, {.inputs = {b}, .retain_graph = true, .mode = mode});
    expect_gradient(context, b, (weights * a).detach());
    EXPECT_EQ(context.gradients().size(), 1u);
    EXPECT_TRUE(gradients(group[1], context.id()).empty());
    context.backward({y.sum()}, {.mode = mode});
    expect_gradient(context, b, (weights * a * 2).detach());
    expect_gradient(context, a, (weights * b).detach());
    expect_equal(gradient_at(group[1], context, weights), (a * b).detach());
  }
}

TEST_P(BackwardSuite, PassesAddUpWhereTheGraphIsRetained) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    weights = leaf(3);
    const Tensor a = leaf(1);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<weigh>("worker1", a).sum();
    for (int pass = 1; pass <= 5; ++pass) {
      context.backward({y}, {.retain_graph = true, .mode = mode});
      expect_equal(context.gradient(a) / pass, weights.detach() * pass / pass);
    }
    context.backward({y}, {.mode = mode});
    EXPECT_TRUE(at::allclose(context.gradient(a), weights * 6));
    EXPECT_TRUE(at::allclose(gradient_at(group[1], context, weights), a * 6));
  }
}

TEST_P(BackwardSuite, GraphThatWasNotRetainedCannotBeWalkedTwice) {
  Group group = start(2);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<weigh>("worker1", a).sum();
  context.backward({y});
  EXPECT_THAT(message_of<Aborted>([&] { context.backward({y}); }), AllOf(HasSubstr("worker1"), HasSubstr("Mul")));
  expect_gradient(context, a, weights.detach());
}

TEST_P(BackwardSuite, ReadGradientsDoNotChangeWithTheNextPass) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<multiply>("worker1", a, b).sum();
  context.backward({y}, {.retain_graph = true});
  const Tensor first = context.gradient(a);
  context.backward({y});
  expect_equal(first, b.detach());
}

TEST_P(BackwardSuite, GradientsOfALeafThatWasGivenOtherDataInBetweenAreAnErrorByName) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2), changed = leaf(3);
  Context context(group[0]);
  const auto pass = [&] { context.backward({group[0].rpc_sync<multiply>("worker1", a, b).sum() + changed.sum()}); };
  pass();
  changed.set_data(at::ones({2, 5}, at::kDouble));
  pass();
  EXPECT_THAT(message_of<Error>([&] { context.gradient(changed); }),
              AllOf(HasSubstr("worker0"), HasSubstr("context " + std::to_string(context.id())), HasSubstr("[3, 3]"),
                    HasSubstr("[2, 5]")));
  EXPECT_THROW(context.gradients(), Error);
  expect_gradient(context, a, (b * 2).detach());
  expect_equal(gradient_at(group[1], context, a), Tensor());
}

TEST_P(BackwardSuite, GradientThatWasFoundOutlivesTheListItWasFoundIn) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2), other = leaf(3);
  Context context(group[0]);
  context.backward({group[0].rpc_sync<multiply>("worker1", a, b).sum()});
  const auto found = context.gradients().find(a);
  EXPECT_TRUE(found->first.is_same(a));
  expect_equal(found, b.detach());
  EXPECT_TRUE(context.gradients().find(other) == context.gradients().end());
  EXPECT_TRUE(context.gradients().find(b) != context.gradients().end());
}

// --- Where a pass begins ---

TEST_P(BackwardSuite, RootsThatLiveElsewhere) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(3);
    const Tensor a = leaf(1);
    Context context(group[0]);
    constexpr auto loss_of = [](Tensor x) { return (x * weights).sum(); };
    constexpr auto squares = [](Tensor x) { return (x * x).sum(); };
    std::vector<RRef<Tensor>> losses{group[0].remote<loss_of>("worker1", a), group[0].remote<squares>("worker2", a)};
    context.backward(losses, {.mode = mode});
    expect_gradient(context, a, (weights + a * 2).detach());
    expect_equal(gradient_at(group[1], context, weights), a.detach());
  }
}

/// Makes a loss of its own, begins the pass, and tells what it has of it.
Tensor backward_here(Tensor x) {
  auto& worker = Worker::current();
  const auto y = worker.rpc_sync<weigh>((worker.rank() + 1) % worker.size(), x);
  backward(worker, current_context_id(), {(y * y).sum()});
  return y;
}

TEST_P(BackwardSuite, RemoteFunctionsMayBeginAPassByTheIdOfTheirContext) {
  Group group = start(3);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  group[0].rpc_sync<backward_here>("worker1", a);
  expect_gradient(context, a, (a * weights * 2 * weights).detach());
  expect_equal(gradient_at(group[2], context, weights), (a * weights * 2 * a).detach());
  EXPECT_TRUE(gradients(group[1], context.id()).empty());
}

TEST_P(BackwardSuite, PassOfAContextThatIsNotKnownIsRefused) {
  Group group = start(2);
  EXPECT_THAT(message_of<Error>([&] { backward(group[1], 12345, {leaf(1).sum()}); }),
              AllOf(HasSubstr("worker1"), HasSubstr("12345")));
  EXPECT_TRUE(gradients(group[1], 12345).empty());
}

TEST_P(BackwardSuite, PassesMayBeginAtEveryWorkerAtOnce) {
  Group group = start(3);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  std::vector<Future<Tensor>> calls;
  for (int round = 0; round < 10; ++round) {
    for (int rank = 0; rank < 3; ++rank) calls.push_back(group[0].rpc_async<backward_here>(rank, a));
  }
  for (auto& call : calls) call.wait();
  EXPECT_TRUE(at::allclose(context.gradient(a), a * weights * 2 * weights * 30));
  Tensor sum = at::zeros_like(a);
  for (int rank = 0; rank < 3; ++rank) sum += gradient_at(group[rank], context, weights);
  EXPECT_TRUE(at::allclose(sum, a * weights * 2 * a * 30));
}

// --- Beside each other ---

TEST_P(BackwardSuite, PassesOfOneContextMayRunAtOnce) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(3);
    const Tensor a = leaf(1);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<weigh>("worker1", group[0].rpc_sync<square_at>("worker1", 2, a)).sum();
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int pass = 0; pass < 10; ++pass) context.backward({y}, {.retain_graph = true, .mode = mode});
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(at::allclose(context.gradient(a), a * 2 * weights * 80));
    EXPECT_TRUE(at::allclose(gradient_at(group[1], context, weights), a * a * 80));
  }
}

TEST_P(BackwardSuite, PassesThatCreateGraphsMayRunBesideOthersInBothModes) {
  constexpr int rounds = 8;
  for (const int threads : {2, 4, 8}) {
    Group group = start(3);
    weights = leaf(3);
    const Tensor a = leaf(1);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<weigh>("worker1", group[0].rpc_sync<square_at>("worker1", 2, a)).sum();
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        for (int round = 0; round < rounds; ++round) {
          const auto mode = (i / 2 + round) % 2 ? Mode::Smart : Mode::Fast;
          if (i % 2) {
            grad(context, {y}, {a}, {.create_graph = true, .mode = mode});
          } else {
            context.backward({y}, {.retain_graph = true, .mode = mode});
          }
        }
      });
    }
    for (auto& thread : running) thread.join();
    EXPECT_TRUE(at::allclose(context.gradient(a), a * 2 * weights * (threads / 2 * rounds)));
  }
}

TEST_P(BackwardSuite, ManyContextsOfManyWorkersMayRunAtOnce) {
  Group group = start(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 9; ++i) {
    threads.emplace_back([&, i] {
      auto& worker = group[i % 3];
      for (int round = 0; round < 20; ++round) {
        const Tensor a = leaf(i), b = leaf(round);
        Context context(worker);
        const auto x = worker.rpc_sync<square_at>((i + 1) % 3, (i + 2) % 3, a);
        context.backward({(x * worker.rpc_sync<multiply>((i + 2) % 3, a, b)).sum()},
                         {.mode = round % 2 ? Mode::Fast : Mode::Smart});
        EXPECT_TRUE(at::allclose(context.gradient(a), a * a * b * 3)) << i << " in round " << round;
        EXPECT_TRUE(at::allclose(context.gradient(b), a * a * a)) << i << " in round " << round;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug() << group[2].debug();
}

TEST_P(BackwardSuite, CallsMadeDuringAPassTakeNoPartInIt) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<multiply>("worker1", a, b).sum();
  std::atomic<bool> done{false};
  std::thread calling([&] {
    const ContextScope scope(context);
    while (!done) group[0].rpc_sync<multiply>("worker1", a, a);
  });
  for (int pass = 0; pass < 50; ++pass) context.backward({y}, {.retain_graph = true});
  done = true;
  calling.join();
  EXPECT_TRUE(at::allclose(context.gradient(a), b * 50));
}

// --- Kinds of gradients ---

Tensor look_up(Tensor table, Tensor rows) { return at::embedding(table, rows, -1, false, /*sparse=*/true); }
std::vector<Tensor> both(Tensor a, Tensor b) { return {a * 2, b * 3}; }

TEST_P(BackwardSuite, SparseGradientsStaySparse) {
  Group group = start(2);
  const Tensor table = at::ones({1000, 4}).requires_grad_();
  const Tensor rows = at::tensor({7, 9, 7}, at::kLong);
  Context context(group[0]);
  context.backward({group[0].rpc_sync<look_up>("worker1", table, rows).sum()}, {.retain_graph = true});
  const Tensor gradient = context.gradient(table);
  ASSERT_TRUE(gradient.is_sparse());
  EXPECT_LE(gradient._nnz(), 3);
  const auto there = gradient.to_dense();
  EXPECT_EQ(there[7][0].item<float>(), 2);
  EXPECT_EQ(there[9][0].item<float>(), 1);
  EXPECT_EQ(there.sum().item<float>(), 12);
}

TEST_P(BackwardSuite, SparseGradientsOfSeveralPassesAddUpAndWithDenseOnes) {
  Group group = start(2);
  const Tensor table = at::ones({10, 4}).requires_grad_();
  const Tensor rows = at::tensor({7, 9, 7}, at::kLong);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<look_up>("worker1", table, rows).sum();
  context.backward({y}, {.retain_graph = true});
  context.backward({y}, {.retain_graph = true});
  EXPECT_TRUE(context.gradient(table).is_sparse());
  EXPECT_EQ(context.gradient(table).to_dense()[7][0].item<float>(), 4);
  context.backward({y + table.sum()});
  EXPECT_EQ(context.gradient(table).to_dense()[7][0].item<float>(), 7);
  EXPECT_EQ(context.gradient(table).to_dense()[0][0].item<float>(), 1);
}

TEST_P(BackwardSuite, OfOneMessageOnlyTheTensorsThatAreReachedHaveGradients) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto results = group[0].rpc_sync<both>("worker1", a, b);
  context.backward({results[1].sum()});
  EXPECT_FALSE(context.gradient(a).defined());
  expect_gradient(context, b, at::full_like(b, 3));
  EXPECT_EQ(context.gradients().size(), 1u);
}

/// Passes x on and gives back no gradient, which is not one of zeros.
struct Forgets : torch::autograd::Function<Forgets> {
  static Tensor forward(torch::autograd::AutogradContext*, Tensor x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {Tensor()};
  }
};
Tensor forget(Tensor x) { return Forgets::apply(x); }

TEST_P(BackwardSuite, UndefinedStaysUndefined) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor a = leaf(1), b = leaf(2);
    Context context(group[0]);
    context.backward({(group[0].rpc_sync<forget>("worker1", a * b) + b).sum()}, {.mode = mode});
    EXPECT_FALSE(context.gradient(a).defined());
    expect_gradient(context, b, at::ones_like(b));
  }
}

TEST_P(BackwardSuite, EmptyAndScalarTensorsHaveGradients) {
  Group group = start(2);
  const Tensor empty = at::ones({0, 3}).requires_grad_(), scalar = at::tensor(2.0).requires_grad_();
  Context context(group[0]);
  context.backward({group[0].rpc_sync<multiply>("worker1", empty, scalar).sum()});
  EXPECT_EQ(context.gradient(empty).sizes(), empty.sizes());
  EXPECT_EQ(context.gradient(scalar).item<double>(), 0);
}

TEST_P(BackwardSuite, ComplexAndHalfPrecisionGradientsTravel) {
  Group group = start(2);
  for (auto type : {at::kComplexDouble, at::kBFloat16}) {
    const Tensor a = leaf(1).detach().to(type).requires_grad_(), b = leaf(2).detach().to(type).requires_grad_();
    Context context(group[0]);
    context.backward({at::real(group[0].rpc_sync<multiply>("worker1", a, b)).sum()});
    EXPECT_EQ(context.gradient(a).scalar_type(), type);
    expect_gradient(context, a, b.detach().conj().resolve_conj());
  }
}

}  // namespace
}  // namespace farad::test
