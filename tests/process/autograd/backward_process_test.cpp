// Passes over processes of their own, which can die or stop in the midst of one, and share no mode with the root.

#include <ATen/ATen.h>
#include <farad/autograd.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <utility>

#include "process/nursery.h"
#include "process/rpc/member.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Clock = std::chrono::steady_clock;

void say_that_it_came();

/// Identity; going back it tells rank 0 that it has come, and then never returns.
struct Stays : torch::autograd::Function<Stays> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    Worker::current().send<say_that_it_came>("worker0");
    Promise<void>().future().wait();
    return gradients;
  }
};

std::promise<void>* came;
void say_that_it_came() { came->set_value(); }

Tensor square(Tensor x) { return x * x; }
Tensor stay_going_back(Tensor x) { return Stays::apply(x * x); }
Tensor square_at(int to, Tensor x) { return Worker::current().rpc_sync<square>(to, x); }
Tensor stay_at(int to, Tensor x) { return Worker::current().rpc_sync<stay_going_back>(to, x); }
Tensor root_of_nothing(Tensor x) { return (x * 0).sqrt() * x; }
/// In a process that notes where each node is made.
Tensor root_of_nothing_in_anomaly_mode(Tensor x) {
  torch::autograd::AnomalyMode::set_enabled(true);
  auto root = root_of_nothing(x);
  torch::autograd::AnomalyMode::set_enabled(false);
  return root;
}
/// Here, in a context of its own.
void begin_a_pass(int over) {
  Context context(Worker::current());
  const auto y = Worker::current().rpc_sync<stay_going_back>(over, at::ones({3}).requires_grad_()).sum();
  context.backward({y});
}
size_t contexts_here() { return Worker::current().debug().contexts.size(); }

std::string error_of(Context& context, const Tensor& root) {
  try {
    context.backward({root});
  } catch (const Aborted& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "the pass succeeded";
  return {};
}

/// Rank 0 here, two others in processes of their own.
class BackwardProcess : public testing::TestWithParam<std::string> {
 protected:
  static constexpr auto lost_after = 1000ms;

  BackwardProcess() {
    MemberPlan plan;
    plan.size = 3;
    plan.lost_after_ms = static_cast<int>(lost_after.count());
    GetParam().copy(plan.transport, sizeof plan.transport - 1);
    ("file://" + directory_.path() + "/meeting").copy(plan.rendezvous, sizeof plan.rendezvous - 1);
    for (int rank : {1, 2}) {
      plan.rank = rank;
      children_[rank] = Nursery::bear<be_a_member>(plan);
    }
    WorkerOptions options;
    options.rank = 0;
    options.size = 3;
    options.transport = GetParam();
    options.rendezvous = plan.rendezvous;
    options.lost_after = lost_after;
    options.rpc_timeout = 100s;
    worker_ = std::make_unique<Worker>(Worker::join(options));
    came = &came_;
  }
  ~BackwardProcess() override {
    worker_.reset();
    for (int rank : {1, 2}) kill(rank);
  }

  void kill(int rank) {
    if (const pid_t child = std::exchange(children_[rank], 0)) Nursery::kill(child);
  }

  /// Calls worker1, which calls worker2, and lets `harm` happen to `victim` while the pass is at worker2.
  void harm_during_a_pass(int victim, const std::function<void()>& harm) {
    const Tensor a = at::ones({3}).requires_grad_();
    {
      Context context(*worker_);
      const auto y = worker_->rpc_sync<stay_at>("worker1", 2, a).sum();
      auto pass = std::async(std::launch::async, [&] { return error_of(context, y); });
      ASSERT_EQ(came_.get_future().wait_for(30s), std::future_status::ready);
      const auto before = Clock::now();
      harm();
      EXPECT_THAT(pass.get(), AllOf(HasSubstr("worker" + std::to_string(victim)),
                                    HasSubstr("context " + std::to_string(context.id()))));
      EXPECT_LE(Clock::now() - before, 3 * lost_after);
      EXPECT_TRUE(context.gradients().empty());
      context_goes_on(context, 3 - victim);
    }
    others_go_on(3 - victim);
  }
  /// As soon as the other one has heard of the loss too.
  void context_goes_on(Context& context, int other) {
    const Tensor a = at::ones({3}).requires_grad_();
    const auto deadline = Clock::now() + 30s;
    while (!context.gradient(a).defined()) {
      ASSERT_LE(Clock::now(), deadline) << "the context cannot be used again:\n" << worker_->debug();
      try {
        context.backward({worker_->rpc_sync<square>(other, a).sum()});
      } catch (const Aborted&) {
      }
    }
    EXPECT_TRUE(at::equal(context.gradient(a), a * 2));
  }
  void others_go_on(int other) {
    {
      const Tensor a = at::ones({3}).requires_grad_();
      Context context(*worker_);
      context.backward({worker_->rpc_sync<square>(other, a).sum()});
      EXPECT_TRUE(at::equal(context.gradient(a), a * 2));
    }
    no_context_is_left(other);
  }
  void no_context_is_left(int other) {
    const auto deadline = Clock::now() + 30s;
    while (worker_->rpc_sync<contexts_here>(other) + worker_->debug().contexts.size() > 0) {
      ASSERT_LE(Clock::now(), deadline) << "contexts are left:\n" << worker_->debug();
    }
  }

  const TemporaryDirectory directory_;
  pid_t children_[3] = {};
  std::unique_ptr<Worker> worker_;
  std::promise<void> came_;
};

TEST_P(BackwardProcess, GradientsComeFromOtherProcesses) {
  const Tensor a = at::full({3}, 3.0).requires_grad_();
  Context context(*worker_);
  context.backward({worker_->rpc_sync<square_at>("worker1", 2, a * 2).sum()});
  EXPECT_TRUE(at::equal(context.gradient(a), a * 8));
}

TEST_P(BackwardProcess, PassFailsWhenAWorkerOfItIsKilled) {
  harm_during_a_pass(2, [&] { kill(2); });
}

TEST_P(BackwardProcess, PassFailsWhenAWorkerOfItStops) {
  harm_during_a_pass(2, [&] { ::kill(children_[2], SIGSTOP); });
}

TEST_P(BackwardProcess, PassFailsWhenAWorkerBetweenIsKilled) {
  harm_during_a_pass(1, [&] { kill(1); });
}

TEST_P(BackwardProcess, PassFailsWhenAWorkerBetweenStops) {
  harm_during_a_pass(1, [&] { ::kill(children_[1], SIGSTOP); });
}

TEST_P(BackwardProcess, PassAndContextEndAtTheOthersWhenTheirMakerIsKilled) {
  auto passing = worker_->rpc_async<begin_a_pass>("worker1", 2);
  ASSERT_EQ(came_.get_future().wait_for(30s), std::future_status::ready);
  kill(1);
  EXPECT_THROW(passing.wait(), PeerLost);
  no_context_is_left(2);
  others_go_on(2);
}

TEST_P(BackwardProcess, PassThatBeganInAnomalyModeLooksForNanInEveryProcess) {
  const Tensor a = at::ones({3}).requires_grad_();
  Context context(*worker_);
  const auto y = worker_->rpc_sync<root_of_nothing>("worker1", a).sum();
  const auto traced = worker_->rpc_sync<root_of_nothing_in_anomaly_mode>("worker1", a).sum();
  context.backward({y}, {.retain_graph = true});
  torch::autograd::AnomalyMode::set_enabled(true);
  const auto message = error_of(context, y), with_trace = error_of(context, traced);
  torch::autograd::AnomalyMode::set_enabled(false);
  for (const auto& text : {message, with_trace}) {
    EXPECT_THAT(text, AllOf(HasSubstr("failed at worker1"), HasSubstr("MulBackward"), HasSubstr("nan")));
  }
  EXPECT_THAT(message, Not(HasSubstr("frame #")));
  EXPECT_THAT(with_trace, AllOf(HasSubstr("Traceback of forward call"), HasSubstr("frame #")));
}

INSTANTIATE_TEST_SUITE_P(Each, BackwardProcess, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
