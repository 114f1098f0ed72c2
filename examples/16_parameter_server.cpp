// A parameter server: worker0 holds the weight, the others train it on data of their own. Either together, one step for
// all of them, or each by itself, as fast as it can. One of them is killed; training goes on from the last checkpoint.

#include <farad/farad.h>
#include <signal.h>

#include <filesystem>
#include <iostream>

namespace fs = std::filesystem;
using Weight = farad::RRef<torch::Tensor>;
using Optimizer = farad::DistributedOptimizer<torch::optim::SGD>;

constexpr int trainers = 2, rounds = 5, steps = 20;  // A checkpoint after each round.
const torch::optim::SGDOptions options(0.05);

torch::Tensor truth() { return torch::arange(8.f) - 3; }
torch::Tensor make_weight() { return torch::zeros({8}, torch::requires_grad()); }

/// Of one trainer's data: which, its seed says.
torch::Tensor loss_of(const torch::Tensor& weight, int trainer, int step) {
  const auto x = (torch::arange(32 * 8.f) * (trainer + 0.1 * step + 1)).sin().view({32, 8});
  return (x.mv(weight) - x.mv(truth())).square().mean();
}
torch::Tensor loss_here(Weight weight, int step) {
  return loss_of(weight.to_here(), farad::Worker::current().rank(), step);
}

/// Gives the loss of each step.
torch::Tensor train_together(farad::Worker& worker, const Weight& weight, Optimizer& optimizer, int round) {
  std::vector<torch::Tensor> sums;
  for (int step = round * steps; step < (round + 1) * steps; ++step) {
    farad::Context context(worker);
    std::vector<farad::Future<torch::Tensor>> losses;
    for (int rank = 1; rank <= trainers; ++rank) losses.push_back(worker.rpc_async<loss_here>(rank, weight, step));
    auto sum = torch::zeros({});
    for (const auto& loss : losses) sum = sum + loss.wait();
    context.backward({sum});
    optimizer.step(context);
    sums.push_back(sum.detach());
  }
  return torch::stack(sums);
}

/// At a trainer; its optimizer and those of the others take turns at the server. Gives the loss of each step.
torch::Tensor train_alone(Weight weight, int round) {
  auto& worker = farad::Worker::current();
  Optimizer optimizer(worker, {weight}, options);
  std::vector<torch::Tensor> losses;
  for (int step = round * steps; step < (round + 1) * steps; ++step) {
    farad::Context context(worker);
    losses.push_back(loss_here(weight, step));
    context.backward({losses.back()});
    optimizer.step(context);
    losses.back() = losses.back().detach();
  }
  return torch::stack(losses);
}

void train_each(farad::Worker& worker, const Weight& weight, int round) {
  std::vector<farad::Future<torch::Tensor>> running;
  for (int rank = 1; rank <= trainers; ++rank) running.push_back(worker.rpc_async<train_alone>(rank, weight, round));
  for (const auto& trainer : running) trainer.wait();
}

void die() { ::raise(SIGKILL); }

/// From the last checkpoint on; worker2 does not live to see the end of round `fatal`.
void serve(farad::Worker& worker, const fs::path& directory, bool together, int fatal) {
  if (worker.rank() != 0) return;  // What is asked of the others, they do until all are done.
  const auto weight = Weight::local(worker, make_weight());
  Optimizer optimizer(worker, {weight}, options);
  int round = rounds;
  while (round > 0 && !fs::exists(directory / std::to_string(round) / "manifest.json")) --round;
  if (round > 0) optimizer.load(directory / std::to_string(round));
  while (round < rounds) {
    if (round == fatal) worker.rpc_async<die>("worker2");
    const auto next = directory / std::to_string(round + 1);
    fs::create_directories(next);
    if (together) {
      torch::save(train_together(worker, weight, optimizer, round), next / "losses.pt");
    } else {
      train_each(worker, weight, round);
    }
    optimizer.save(next);
    ++round;
  }
}

struct Result {
  torch::Tensor weight, losses;
};
bool alike(const Result& one, const Result& other) {
  return torch::allclose(one.weight, other.weight, 1e-4, 1e-6) && torch::allclose(one.losses, other.losses, 1e-4, 1e-6);
}

/// With the data of the first `count` trainers.
Result train_in_one_process(int count) {
  const auto weight = make_weight();
  std::vector<torch::Tensor> losses;
  torch::optim::SGD optimizer({weight}, options);
  for (int step = 0; step < rounds * steps; ++step) {
    optimizer.zero_grad();
    auto sum = torch::zeros({});
    for (int trainer = 1; trainer <= count; ++trainer) sum = sum + loss_of(weight, trainer, step);
    losses.push_back(sum);
    losses.back().backward();
    optimizer.step();
  }
  return {weight.detach(), torch::stack(losses).detach()};
}

/// A trainer that is alone always meets the weight that its last step has made.
void compare_one_trainer(farad::Worker& worker) {
  if (worker.rank() != 0) return;
  const auto weight = Weight::local(worker, make_weight());
  std::vector<torch::Tensor> losses;
  for (int round = 0; round < rounds; ++round) losses.push_back(worker.rpc_sync<train_alone>(1, weight, round));
  const bool like = alike({weight.local_value().detach(), torch::cat(losses)}, train_in_one_process(1));
  std::cout << "one trainer by itself: " << (like ? "like" : "UNLIKE") << " one process\n";
}

/// Of a training each by itself there are no common losses.
Result result_in(farad::Worker& worker, const fs::path& directory) {
  const auto weight = Weight::local(worker, make_weight());
  Optimizer(worker, {weight}, options).load(directory / std::to_string(rounds));
  std::vector<torch::Tensor> losses(rounds);
  for (int round = 0; round < rounds; ++round) {
    const auto file = directory / std::to_string(round + 1) / "losses.pt";
    if (fs::exists(file)) torch::load(losses[round], file);
  }
  return {weight.local_value().detach(), losses[0].defined() ? torch::cat(losses) : torch::Tensor()};
}

int main() {
  const auto directory = fs::temp_directory_path() / ("farad-parameter-server-" + std::to_string(::getpid()));
  const auto whole = directory / "whole", resumed = directory / "resumed", apart = directory / "apart";
  farad::spawn(1 + trainers, [&](farad::Worker& worker) { serve(worker, whole, true, -1); });
  for (const auto& [where, together] : {std::pair(resumed, true), std::pair(apart, false)}) {
    try {
      farad::spawn(1 + trainers, [&](farad::Worker& worker) { serve(worker, where, together, 2); });
    } catch (const farad::Error& lost) {  // Of the worker that died, or of who waited for it.
      std::cout << lost.what_without_backtrace() << '\n';
    }
    farad::spawn(1 + trainers, [&](farad::Worker& worker) { serve(worker, where, together, -1); });
  }
  farad::spawn(2, compare_one_trainer);
  farad::spawn(1, [&](farad::Worker& worker) {
    const auto alone = train_in_one_process(trainers);
    const auto end = result_in(worker, whole), again = result_in(worker, resumed);
    const bool equal = torch::equal(again.weight, end.weight) && torch::equal(again.losses, end.losses);
    // Who steps by how old a weight, the scheduler decides, so the last decimals are chance. They began 4 off.
    const auto learned = [](const Result& of) { return torch::allclose(of.weight, truth(), 0, 0.5); };
    std::cout << "together: " << (alike(end, alone) ? "like" : "UNLIKE") << " one process\n"
              << "killed and resumed: " << (equal ? "equal" : "DIFFERENT") << '\n'
              << "each by itself, killed and resumed: "
              << (learned(result_in(worker, apart)) && learned(alone) ? "learned" : "NOT LEARNED") << " the same\n";
  });
  fs::remove_all(directory);
}
