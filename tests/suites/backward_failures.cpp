// What a pass does that cannot be finished: it ends, everywhere, and says where and why.

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <thread>

#include "autograd/pass_mail.h"
#include "autograd/service.h"
#include "suites/backward_suite.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static std::atomic<bool> fails;
static Door* held;

/// Identity; going back it throws if it is told to.
struct Brittle : torch::autograd::Function<Brittle> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    if (fails) throw std::runtime_error("it broke");
    return gradients;
  }
};
/// Identity; going back it waits at the door.
struct Waits : torch::autograd::Function<Waits> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    held->pass();
    return gradients;
  }
};

static Tensor weights;

Tensor brittle(Tensor x) { return Brittle::apply(x * weights); }
Tensor wait_going_back(Tensor x) { return Waits::apply(x * 2); }
Tensor brittle_at(int to, Tensor x) { return Worker::current().rpc_sync<brittle>(to, x * weights); }
Tensor root_of(Tensor x) { return (x * 0).sqrt() * x; }

std::string backward_error(Context& context, const Tensor& root, BackwardOptions options = {}) {
  return message_of<Aborted>([&] { context.backward({root}, options); });
}

void expect_no_gradient_anywhere(Group& group, const Context& context) {
  for (int rank = 0; rank < group.size(); ++rank) {
    EXPECT_TRUE(gradients(group[rank], context.id()).empty()) << "at worker " << rank;
  }
}

TEST_P(BackwardSuite, NodeThatThrowsIsNamedWithWorkerContextAndPass) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(3);
    const Tensor a = leaf(1);
    {
      Context context(group[0]);
      const auto y = group[0].rpc_sync<brittle_at>("worker1", 2, a).sum();
      fails = true;
      EXPECT_THAT(backward_error(context, y, {.retain_graph = true, .mode = mode}),
                  AllOf(HasSubstr("[autograd]"), HasSubstr("worker2"), HasSubstr("Brittle"), HasSubstr("it broke"),
                        HasSubstr("context " + std::to_string(context.id())), HasSubstr("pass ")));
      expect_no_gradient_anywhere(group, context);
      EXPECT_TRUE(eventually([&] {
        size_t passes = 0;
        for (int rank = 0; rank < 3; ++rank) passes += group[rank].debug().contexts.at(0).passes.size();
        return passes == 0;
      })) << "every worker drops the pass";

      fails = false;  // The context can be used again.
      context.backward({y}, {.mode = mode});
      expect_gradient(context, a, (weights * weights).detach());
      expect_equal(gradient_at(group[2], context, weights), (a * weights).detach());
    }
    EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug() << group[2].debug();
  }
}

TEST_P(BackwardSuite, NodeThatThrowsAtTheRootIsNamedToo) {
  Group group = start(2);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto y = brittle(group[0].rpc_sync<multiply>("worker1", a, a)).sum();
  fails = true;
  EXPECT_THAT(backward_error(context, y), AllOf(HasSubstr("worker0"), HasSubstr("Brittle"), HasSubstr("it broke")));
  expect_no_gradient_anywhere(group, context);
}

TEST_P(BackwardSuite, GradientsOfAFailedPassAreSeenNowhereThoughAllLeavesHadTheirs) {
  Group group = start(2);
  weights = leaf(3);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto safe = group[0].rpc_sync<multiply>("worker1", a, b).sum();
  context.backward({safe}, {.retain_graph = true});
  fails = true;
  backward_error(context, safe + group[0].rpc_sync<brittle>("worker1", a).sum());
  expect_gradient(context, a, b.detach());
  EXPECT_EQ(context.gradients().size(), 2u);
  EXPECT_TRUE(gradients(group[1], context.id()).empty());
}

TEST_P(BackwardSuite, NodeThatThrowsSaysWhereItWasMadeInAnomalyMode) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    weights = leaf(3);
    fails = true;
    const auto run = [&] {
      Context context(group[0]);
      return backward_error(context, group[0].rpc_sync<brittle>("worker1", leaf(1)).sum(), {.mode = mode});
    };
    EXPECT_THAT(run(), AllOf(HasSubstr("it broke"), Not(HasSubstr("Traceback"))));
    torch::autograd::AnomalyMode::set_enabled(true);
    const auto told = run();
    torch::autograd::AnomalyMode::set_enabled(false);
    EXPECT_THAT(told, AllOf(HasSubstr("failed at worker1"), HasSubstr("Brittle"), HasSubstr("it broke"),
                            HasSubstr("Traceback of forward call"), HasSubstr("frame #")));
  }
}

TEST_P(BackwardSuite, HookThatThrowsIsNamed) {
  Group group = start(2);
  weights = leaf(3);
  weights.register_hook([](const Tensor&) { throw std::runtime_error("a hook broke"); });
  fails = false;
  Context context(group[0]);
  EXPECT_THAT(backward_error(context, group[0].rpc_sync<brittle>("worker1", leaf(1)).sum()),
              AllOf(HasSubstr("worker1"), HasSubstr("AccumulateGrad"), HasSubstr("a hook broke")));
  expect_no_gradient_anywhere(group, context);
}

TEST_P(BackwardSuite, HooksMayMakeCalls) {
  Group group = start(3);
  weights = leaf(3);
  const Tensor a = leaf(1);
  int64_t in_hook = 0;
  a.register_hook([&](const Tensor& gradient) {
    in_hook = current_context_id();
    return Worker::current().rpc_sync<multiply>("worker2", gradient, gradient);
  });
  weights.register_hook(
      [&](const Tensor& gradient) { return Worker::current().rpc_sync<multiply>("worker0", gradient, gradient); });
  fails = false;
  Context context(group[0]);
  context.backward({group[0].rpc_sync<brittle>("worker1", a).sum()});
  EXPECT_EQ(in_hook, context.id());
  expect_gradient(context, a, (weights * weights).detach());
  expect_equal(gradient_at(group[1], context, weights), (a * a).detach());
}

TEST_P(BackwardSuite, PassThatTakesTooLongIsGivenUp) {
  Door door;
  held = &door;
  Group group = start(2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<wait_going_back>("worker1", a).sum();
  EXPECT_THAT(backward_error(context, y, {.retain_graph = true, .timeout = 50ms}),
              AllOf(HasSubstr("50 ms"), HasSubstr("context " + std::to_string(context.id()))));
  EXPECT_TRUE(context.gradients().empty());
  EXPECT_TRUE(eventually([&] { return group[1].debug().contexts.at(0).passes.empty(); }))
      << "whoever takes part drops it at once, also where a node still runs: " << group[1].debug();
  door.open();
  context.backward({y});
  expect_gradient(context, a, at::full_like(a, 2));
}

TEST_P(BackwardSuite, PassThatTakesTooLongInACheckpointIsGivenUp) {
  Door door;
  held = &door;
  Group group = start(2);
  const Tensor a = leaf(1);
  {
    Context context(group[0]);
    const auto far = [&](Tensor x) { return group[0].rpc_sync<wait_going_back>("worker1", x); };
    const auto y = checkpoint([&](Tensor x) { return checkpoint(far, x); }, a).sum();
    EXPECT_THAT(backward_error(context, y, {.retain_graph = true, .timeout = 50ms}),
                AllOf(HasSubstr("pass 1 of worker0"), HasSubstr("failed at worker0: not done in 50 ms")));
    expect_no_gradient_anywhere(group, context);
    door.open();
    context.backward({y});
    expect_gradient(context, a, at::full_like(a, 2));
  }
  EXPECT_TRUE(no_context_is_left(group));
}

TEST_P(BackwardSuite, PassThatHasNothingToWaitForIsGivenUpBetweenTwoNodes) {
  Group group = start(1);
  Context context(group[0]);
  const Door door;
  bool went_on = false;
  const auto x = leaf(1) * 2, y = x * 3;
  y.register_hook([&](const Tensor&) { EXPECT_FALSE(door.opened().wait_for(50ms)); });
  x.register_hook([&](const Tensor&) { went_on = true; });
  EXPECT_THAT(backward_error(context, y.sum(), {.timeout = 50ms}), HasSubstr("not done in 50 ms"));
  EXPECT_FALSE(went_on);
}

Tensor root_at_the_door(Tensor x) {
  held->pass();
  return x.sum();
}

TEST_P(BackwardSuite, RootsThatAreFetchedCountForTheTimeout) {
  Door door;
  held = &door;
  Group group = start(2);
  Context context(group[0]);
  const std::vector<RRef<Tensor>> roots{group[0].remote<root_at_the_door>("worker1", leaf(1))};
  EXPECT_THROW(context.backward(roots, {.timeout = 50ms}), Timeout);
  door.open();
  context.backward(roots);
}

TEST_P(BackwardSuite, PassMayLastLongerThanACall) {  // L2
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Door door;
    held = &door;
    Group group = start(2, {.rpc_timeout = 50ms});
    const Tensor a = leaf(1);
    Context context(group[0]);
    const auto y = group[0].with({.timeout = 0ms}).rpc_sync<wait_going_back>("worker1", a).sum();
    std::thread opening([&] {
      EXPECT_TRUE(door.has_come());
      EXPECT_FALSE(door.opened().wait_for(150ms));
      door.open();
    });
    context.backward({y}, {.mode = mode});
    opening.join();
    expect_gradient(context, a, at::full_like(a, 2));
  }
}

TEST_P(BackwardSuite, WorkerThatEndsDuringAPassIsNamed) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Door door;
    held = &door;
    Group group = start(3);
    const Tensor a = leaf(1), b = leaf(2);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<wait_going_back>("worker1", a).sum();
    const auto other = group[0].rpc_sync<multiply>("worker2", a, b).sum();
    std::thread ending([&] {
      EXPECT_TRUE(door.has_come());
      std::thread dropping([&] { group.drop(1); });
      EXPECT_TRUE(eventually([&] { return group[0].debug().contexts.at(0).passes.empty(); }));
      door.open();  // Only now: what runs there holds its end up.
      dropping.join();
    });
    EXPECT_THAT(backward_error(context, y + other, {.mode = mode}),
                AllOf(HasSubstr("worker1"), HasSubstr("context " + std::to_string(context.id()))));
    ending.join();
    EXPECT_TRUE(context.gradients().empty());
    EXPECT_TRUE(gradients(group[2], context.id()).empty());
  }
}

TEST_P(BackwardSuite, ContextThatEndsDuringAPassEndsThePass) {
  Door door;
  held = &door;
  Group group = start(2);
  {
    auto context = std::make_unique<Context>(group[0]);
    const auto id = context->id();
    const auto y = group[0].rpc_sync<wait_going_back>("worker1", leaf(1)).sum();
    std::string text;
    std::thread passing([&] { text = message_of<Aborted>([&] { backward(group[0], id, {y}); }); });
    EXPECT_TRUE(door.has_come());
    context.reset();
    passing.join();
    EXPECT_TRUE(no_context_is_left(group)) << "also where a node still runs: " << group[1].debug();
    door.open();
    EXPECT_THAT(text, AllOf(HasSubstr("pass 1 of worker0"), HasSubstr("context " + std::to_string(id)),
                            HasSubstr("failed at worker0: its context was released")));
  }
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug();
}

TEST_P(BackwardSuite, NanIsFoundAtTheWorkerThatMadeItInAnomalyMode) {
  Group group = start(2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<root_of>("worker1", a).sum();
  context.backward({y}, {.retain_graph = true});
  EXPECT_TRUE(context.gradient(a).isnan().any().item<bool>());
  torch::autograd::AnomalyMode::set_enabled(true);  // Before the forward pass, so that nodes know where they were made.
  const auto message = backward_error(context, group[0].rpc_sync<root_of>("worker1", a).sum());
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_THAT(message, AllOf(HasSubstr("failed at worker1"), HasSubstr("MulBackward"), HasSubstr("nan"),
                             HasSubstr("Traceback of forward call"), HasSubstr("frame #")));
}

uint64_t life_at(Worker& worker, const Context& context) {
  return detail::WorkerCore::of(worker).gradients().contexts().find(autograd::ContextId(context.id()))->life();
}

/// What a message of gradients that were recorded leaves behind if it does not go after all: nothing.
TEST(GradientsThatDidNotGo, FailTheirPassAndAreWaitedForByNoOther) {
  Group group("local", 2);
  weights = leaf(3);
  fails = false;
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<brittle>("worker1", a).sum();
  grad(context, {y}, {a}, {.create_graph = true});
  auto& there = detail::WorkerCore::of(group[1]).gradients();
  const auto sends = [&] { return there.contexts().find(autograd::ContextId(context.id()))->look().entries.sends; };
  const auto before = sends();
  ASSERT_EQ(before.size(), 2u) << "the result, and the gradient of the argument";
  const auto& gradient = before.back()->passage();
  ASSERT_TRUE(gradient.gradient);

  autograd::PassMail mail, other;
  mail.living = other.living = true;
  mail.pair = gradient.pair;
  mail.recorded = 1;
  mail.message.kind = autograd::PassKind::Grads;
  mail.message.context = other.message.context = autograd::ContextId(context.id());
  mail.message.pass = other.message.pass = {base::Rank(0), 1};
  mail.message.answers.emplace_back().tensors = 1;
  mail.message.states = {autograd::TensorState::Tensor};
  other.message.kind = autograd::PassKind::Commit;
  // What was taken back comes without its tensors.
  there.on_unsent({base::Rank(0), {}}, autograd::encode({mail, other}, {}), {base::Code::Invalid, "it was changed"});
  EXPECT_EQ(sends().size(), 1u);
  context.backward({y});
}

static Tensor kept_loss;
void keep_loss(Tensor x) { kept_loss = (x * x).sum(); }

// The way it is where a device has no memory left for them.
TEST(GradientsThatCannotBePlaced, FailTheirPassAlsoIfItHasNotBegun) {
  Group group("local", 2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  group[0].rpc_sync<keep_loss>("worker1", a);
  autograd::PassMail mail;
  mail.living = true;
  mail.message.kind = autograd::PassKind::Grads;
  mail.message.context = autograd::ContextId(context.id());
  mail.message.pass = {base::Rank(1), 1, life_at(group[1], context)};
  mail.message.answers.emplace_back().tensors = 1;
  mail.message.states = {autograd::TensorState::Tensor};
  auto message = autograd::encode({mail}, {at::ones({3, 3})});
  message.devices = {c10::Device(c10::kCUDA, 100)};
  auto& fabric = detail::WorkerCore::of(group[1]).agent().fabric();
  ASSERT_TRUE(fabric.post(base::Rank(0), std::move(message)).status.ok());

  const auto run = [&] { backward(group[1], context.id(), {kept_loss}, {.retain_graph = true}); };
  EXPECT_THAT(message_of<Aborted>(run), AllOf(HasSubstr("cuda:100"), HasSubstr("worker0")));
  run();
  expect_gradient(context, a, (2 * a).detach());
  kept_loss.reset();
}

}  // namespace
}  // namespace farad::test
