#include <ATen/ops/rand.h>
#include <farad/optim.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <iostream>
#include <map>

#include "common/member.h"
#include "common/sample.h"
#include "training/roles.h"

namespace farad::bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using torch::nn::Linear;
using torch::optim::SGDOptions;

namespace {

Linear make_linear() { return Linear(step_width, step_width); }

/// A full step: a context, a call, a pass, and the optimizer's step at the owner.
class FarStep {
 public:
  explicit FarStep(Worker& worker)
      : worker_(worker), linear_(worker.remote<make_linear>(1)), optimizer_(worker, parameters(linear_), step_rate) {}

  void operator()() {
    const auto start = Clock::now();
    {
      Context context(worker_);
      const auto y = linear_.rpc_sync<&torch::nn::LinearImpl::forward>(x_);
      const auto called = lap("call", start);
      context.backward({y.sum()});
      const auto passed = lap("backward", called);
      optimizer_.step(context);
      lap("optimizer", passed);
    }
    lap("all", start);
  }

  /// The times of whole steps, and of their parts.
  nlohmann::json times() const {
    nlohmann::json result;
    for (const auto& [what, times] : laps_) result[what] = summarise(times);
    return result;
  }
  void forget() { laps_.clear(); }

 private:
  Clock::time_point lap(const char* what, Clock::time_point since) {
    const auto now = Clock::now();
    laps_[what].push_back(std::chrono::duration<double, std::micro>(now - since).count());
    return now;
  }

  Worker& worker_;
  const at::Tensor x_ = at::rand({step_batch, step_width});
  const RRef<Linear> linear_;
  DistributedOptimizer<torch::optim::SGD> optimizer_;
  std::map<std::string, std::vector<double>> laps_;
};

/// At a trainer: fetches the weight, computes, and steps it at the server; as often as the time allows.
int64_t train_for(RRef<at::Tensor> weight, int64_t milliseconds) {
  auto& worker = Worker::current();
  DistributedOptimizer<torch::optim::SGD> optimizer(worker, {weight}, step_rate);
  const auto x = at::rand({step_batch, step_width});
  int64_t steps = 0;
  for (const auto until = Clock::now() + std::chrono::milliseconds(milliseconds); Clock::now() < until; ++steps) {
    Context context(worker);
    context.backward({x.mm(weight.to_here()).sum()});
    optimizer.step(context);
  }
  return steps;
}

double steps_per_second(const Worker& worker, const RRef<at::Tensor>& weight, std::chrono::milliseconds span) {
  std::vector<Future<int64_t>> trainers;
  for (int rank = 1; rank < worker.size(); ++rank) {
    trainers.push_back(worker.rpc_async<train_for>(rank, weight, span.count()));
  }
  int64_t steps = 0;
  for (const auto& trainer : trainers) steps += trainer.wait();
  return static_cast<double>(steps) / std::chrono::duration<double>(span).count();
}

}  // namespace

void step_client(const Words& words) {
  Worker worker = join(words, 0);
  {
    FarStep step(worker);
    for (int i = 0; i < 50; ++i) step();
    step.forget();
    for (const auto until = Clock::now() + 1s; Clock::now() < until;) step();
    std::cout << step.times() << std::endl;
  }
  worker.close();
}

void step_alone(const Words&) {
  Linear linear(step_width, step_width);
  torch::optim::SGD optimizer(linear->parameters(), step_rate);
  const auto x = at::rand({step_batch, step_width});
  const auto step = [&] {
    optimizer.zero_grad();
    linear(x).sum().backward();
    optimizer.step();
  };
  std::cout << nlohmann::json{{"all", time_each(step, 1s)}} << std::endl;
}

void parameter_server(const Words& words) {
  Worker worker = join(words, 0, std::stoi(words[2]));
  {
    const auto weight = RRef<at::Tensor>::local(worker, at::rand({step_width, step_width}).set_requires_grad(true));
    steps_per_second(worker, weight, 200ms);
    std::cout << steps_per_second(worker, weight, 1s) << std::endl;
  }
  worker.close();
}

void member(const Words& words) { join(words, std::stoi(words[3]), std::stoi(words[2])).close(); }

}  // namespace farad::bench
