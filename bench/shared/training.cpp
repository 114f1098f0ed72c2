#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <farad/shared.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "common/sample.h"
#include "shared/roles.h"
#include "shared/task.h"

namespace farad::bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using shared::Model;
using shared::Policy;
using torch::nn::Linear;

namespace {

constexpr auto patience = 60s;  // for other processes
constexpr int parts = 20;       // of a run, after each of which its loss is looked at

constexpr std::array policies{std::pair{"Locked", Policy::Locked}, std::pair{"Hogwild", Policy::Hogwild},
                              std::pair{"AllReduced", Policy::AllReduced}, std::pair{"Managed", Policy::Managed},
                              std::pair{"Averaged", Policy::Averaged}};

Policy policy_named(const std::string& name) {
  for (const auto& [known, policy] : policies) {
    if (name == known) return policy;
  }
  throw std::runtime_error("[bench] no policy \"" + name + "\"");
}

uint64_t applied_in(const shared::Stats& stats) {
  uint64_t all = 0;
  for (const auto& worker : stats.workers) all += worker.applied;
  return all;
}

/// By each process; so many that their last average is of all of them. One of the large model takes a while.
uint64_t increases_of(const std::string& size) { return size == "large" ? 16 : 1600; }

/// Serves until it holds. Throws once it cannot come about any more: one of those that train has ended before it had
/// applied `due` updates, or it takes too long.
void wait_until(const Model& model, uint64_t due, const std::function<bool(const shared::Stats&)>& holds,
                const std::function<void()>& serve) {
  for (const auto end = Clock::now() + patience; Clock::now() < end; serve()) {
    const auto stats = model.stats();
    if (holds(stats)) return;
    for (const auto& one : stats.workers) {
      if (one.worker == model.worker() || one.alive || one.applied >= due) continue;
      throw std::runtime_error("[bench] worker " + std::to_string(one.worker) + " ended after " +
                               std::to_string(one.applied) + " updates");
    }
  }
  throw std::runtime_error("[bench] those that train take too long");
}

}  // namespace

void offer(const Words& words) {
  at::set_num_threads(1);
  const auto& size = words.at(2);
  const int trainers = std::stoi(words.at(3));
  const std::chrono::milliseconds span(std::stoi(words.at(4)));
  auto module = make_linear(size);
  // A rate of 0 is how they know that it has not begun yet, and later that it is over.
  auto model = Model::create(words.at(0), module, torch::optim::SGDOptions(0),
                             {.policy = policy_named(words.at(1)), .patience = patience, .members = trainers});
  const auto serve_for = [&](std::chrono::milliseconds some) {
    const auto until = Clock::now() + some;
    while (Clock::now() < until) {
      if (model.policy() == Policy::Managed) model.manage(1ms);
      if (model.policy() != Policy::Managed) std::this_thread::sleep_until(until);
    }
  };
  constexpr uint64_t for_ever = UINT64_MAX;
  const auto steps = [&] { return applied_in(model.stats()); };
  const auto wait_for_steps = [&](uint64_t wanted, std::chrono::milliseconds pause) {
    const auto are_there = [&](const auto& stats) { return applied_in(stats) >= wanted; };
    wait_until(model, for_ever, are_there, [&] { serve_for(pause); });
  };
  const auto all_have_come = [&](const auto& stats) { return stats.workers.size() > static_cast<size_t>(trainers); };
  wait_until(model, for_ever, all_have_come, [&] { serve_for(1ms); });
  nlohmann::json losses;
  auto seen = make_linear(size);
  const auto x = at::randn({256, seen->weight.size(1)});
  const auto write_down_loss = [&] {
    if (size != "small") return;  // To look at the large one takes longer than to train it.
    model.pull(seen);
    losses.push_back(loss_of(seen, x).item<double>());
  };
  write_down_loss();
  model.set_lr(rate);
  for (int part = 0; part < 2; ++part, write_down_loss()) serve_for(span / parts);
  const auto least = static_cast<uint64_t>(least_steps * trainers);
  wait_for_steps(static_cast<uint64_t>(trainers), 1ms);
  const uint64_t before = steps();
  const auto start = Clock::now();
  for (int part = 2; part < parts; ++part, write_down_loss()) serve_for(span / parts);
  wait_for_steps(before + least, 10ms);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double rate_of_steps = static_cast<double>(steps() - before) / seconds;
  model.set_lr(0);
  const auto all_is_applied = [&](const shared::Stats& stats) {
    return stats.waiting == 0 && std::none_of(stats.workers.begin(), stats.workers.end(), [&](const auto& one) {
             return one.worker != model.worker() && one.alive;
           });
  };
  if (model.policy() == Policy::Managed) wait_until(model, 0, all_is_applied, [&] { serve_for(1ms); });
  const auto stats = model.stats();
  std::cout << nlohmann::json{{"steps a second", rate_of_steps},
                              {"losses", losses},
                              {"mean staleness", stats.mean_staleness},
                              {"most staleness", stats.max_staleness},
                              {"lost", stats.lost},
                              {"snapshots torn", stats.snapshots_torn}}
            << std::endl;
}

void train(const Words& words) {
  at::set_num_threads(1);
  auto module = make_linear(words.at(1));
  auto model = Model::attach(words.at(0), module, {.patience = patience});
  const auto x = make_batches(module, shared::stream_seed(1, model.stream()));
  while (model.lr() == 0) std::this_thread::sleep_for(1ms);
  // The usual loop of PyTorch computes from the shared module while others write it; so does this one.
  for (int64_t i = 0; model.lr() > 0; ++i) {
    const auto loss = loss_of(module, x[i % x.size(0)]);
    try {
      model.learn(loss);
    } catch (const std::exception&) {  // Others have ended before.
      if (model.lr() > 0) throw;
    }
  }
}

void train_alone(const Words& words) {
  at::set_num_threads(1);
  auto module = make_linear(words.at(0));
  const auto x = make_batches(module, 1);
  const auto parameters = module->parameters();
  uint64_t steps = 0;
  const auto train_for = [&](std::chrono::milliseconds span) {
    for (const auto end = Clock::now() + span; Clock::now() < end; ++steps) {
      for (const auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
      loss_of(module, x[static_cast<int64_t>(steps) % x.size(0)]).backward();
      const c10::NoGradGuard no_grad;
      for (const auto& parameter : parameters) parameter.add_(parameter.grad(), -rate);
    }
  };
  const std::chrono::milliseconds span(std::stoi(words.at(1)));
  train_for(span / 10);
  steps = 0;
  const auto start = Clock::now();
  train_for(span);
  std::cout << static_cast<double>(steps) / std::chrono::duration<double>(Clock::now() - start).count() << std::endl;
}

void tally(const Words& words) {
  at::set_num_threads(1);
  const int trainers = std::stoi(words.at(2));
  const uint64_t increases = increases_of(words.at(3));
  auto module = make_linear(words.at(3));
  for (const auto& parameter : module->parameters()) parameter.detach().zero_();
  auto model = Model::create(words.at(0), module, torch::optim::SGDOptions(1),
                             {.policy = policy_named(words.at(1)), .patience = patience, .members = trainers});
  const auto all = static_cast<uint64_t>(trainers) * increases;
  wait_until(
      model, increases, [&](const auto& stats) { return applied_in(stats) >= all; },
      [&] {
        if (model.policy() == Policy::Managed) model.manage(1ms);
        if (model.policy() != Policy::Managed) std::this_thread::sleep_for(1ms);
      });
  // Where the gradients or the copies of all are averaged, each increase is one of all of them.
  const bool together = model.policy() == Policy::AllReduced || model.policy() == Policy::Averaged;
  const auto expected = static_cast<double>(together ? increases : all);
  const auto elements = model.snapshot().tensors.front().second.to(at::kDouble);
  std::cout << nlohmann::json{{"mean", 1 - elements.mean().item<double>() / expected},
                              {"worst", 1 - elements.min().item<double>() / expected}}
            << std::endl;
}

void increase(const Words& words) {
  at::set_num_threads(1);
  const uint64_t increases = increases_of(words.at(2));
  auto module = make_linear(words.at(2));
  auto model = Model::attach(words.at(0), module, {.patience = patience});
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : module->parameters()) gradients.push_back(at::full_like(parameter.detach(), -1));
  const auto all_have_come = [&](const auto& stats) { return stats.workers.size() > std::stoul(words.at(1)); };
  wait_until(model, increases, all_have_come, [] { std::this_thread::sleep_for(1ms); });
  for (uint64_t i = 0; i < increases; ++i) model.step(gradients);
  if (model.policy() == Policy::Managed) model.settle();
}

void look(const Words&) {
  at::set_num_threads(1);
  auto module = make_linear("large"), own = make_linear("large");
  auto model = Model::create("bench-look-" + std::to_string(::getpid()), module, torch::optim::SGDOptions(rate));
  const auto& weight = module->weight;
  const auto to = at::empty_like(weight);
  const auto copy_to = [&](const at::Tensor& tensor) {
    std::memcpy(tensor.data_ptr(), weight.data_ptr(), weight.nbytes());
  };
  std::cout << nlohmann::json{{"pull", time_each([&] { model.pull(own); }, 1s)},
                              {"memcpy", time_each([&] { copy_to(to); }, 1s)},
                              {"snapshot", time_each([&] { model.snapshot(); }, 1s)},
                              {"memcpy into new memory", time_each([&] { copy_to(at::empty_like(weight)); }, 1s)}}
            << std::endl;
}

}  // namespace farad::bench
