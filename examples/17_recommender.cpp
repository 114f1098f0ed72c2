// A recommender whose embedding table is too large for one worker: its rows are spread over the others, their gradients
// are sparse, and a dense tower is here. One of the workers is killed in the middle; training goes on from the last
// checkpoint and ends where it would have ended anyway, which is where one process ends.

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <iostream>

#include "recommender.h"

namespace fs = std::filesystem;

constexpr int steps = 60, between_checkpoints = 20;
constexpr double lr = 0.2;

using Optimizer = farad::DistributedOptimizer<torch::optim::Adagrad>;

fs::path at_step(const fs::path& directory, int step) { return directory / std::to_string(step); }

/// How many steps the last checkpoint is from the beginning.
int steps_done(const fs::path& directory) {
  int step = steps;
  while (step > 0 && !fs::exists(at_step(directory, step) / "manifest.json")) --step;
  return step;
}

void die() { ::raise(SIGKILL); }

/// Goes on where the last checkpoint is; worker2 does not live to see the end of step `fatal`.
void train(farad::Worker& worker, const fs::path& directory, int fatal) {
  if (worker.rank() != 0) return;  // What is asked of the others, they do until all are done.
  recommender::Sharded model(worker, {1, 2});
  Optimizer optimizer(worker, model.parameters(), torch::optim::AdagradOptions(lr));
  torch::Tensor losses = torch::empty({0}, torch::kDouble);
  int step = steps_done(directory);
  if (step > 0) {
    optimizer.load(at_step(directory, step));
    torch::load(losses, at_step(directory, step) / "losses.pt");
    std::cout << "going on after step " << step << '\n';
  }
  const auto start = std::chrono::steady_clock::now();
  const int first = step;
  while (step < steps) {
    farad::Context context(worker);
    const auto loss = model.loss(recommender::clicks(step));
    if (step == fatal) worker.rpc_async<die>("worker2");
    context.backward({loss});
    optimizer.step(context);
    losses = torch::cat({losses, loss.detach().to(torch::kDouble).view({1})});
    if (++step % between_checkpoints != 0) continue;
    fs::create_directories(at_step(directory, step));
    torch::save(losses, at_step(directory, step) / "losses.pt");
    optimizer.save(at_step(directory, step));
  }
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  std::cout << "three processes: " << taken.count() / (steps - first) << " ms a step\n";
}

/// Both trainings end alike, and like one process. Their checkpoints are loaded onto another placement for that.
void compare(farad::Worker& worker, const fs::path& whole, const fs::path& resumed) {
  const auto start = std::chrono::steady_clock::now();
  const auto [losses, parameters] = recommender::train_in_one_process(steps, lr);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  std::cout << "one process: " << taken.count() / steps << " ms a step\n";
  std::vector<std::vector<torch::Tensor>> ends;
  for (const auto& directory : {whole, resumed}) {
    recommender::Sharded model(worker, {0, 0});
    Optimizer(worker, model.parameters(), torch::optim::AdagradOptions(lr)).load(at_step(directory, steps));
    ends.push_back(model.values());
    torch::load(ends.back().emplace_back(), at_step(directory, steps) / "losses.pt");
  }
  bool equal = true, alike = torch::allclose(ends[0].back(), torch::tensor(losses, torch::kDouble), 1e-4, 1e-6);
  for (size_t i = 0; i < ends[0].size(); ++i) equal = equal && torch::equal(ends[0][i], ends[1][i]);
  for (size_t i = 0; i < parameters.size(); ++i) {
    alike = alike && torch::allclose(ends[0][i], parameters[i].detach(), 1e-3, 1e-5);
  }
  std::cout << "loss " << losses.front() << ", after " << steps << " steps " << losses.back() << '\n'
            << "one process on the same clicks: losses and parameters " << (alike ? "agree" : "DIFFER") << '\n'
            << "killed and resumed, and not interrupted: " << (equal ? "equal to the bit" : "DIFFERENT") << '\n';
}

int main() {
  const auto directory = fs::temp_directory_path() / ("farad-recommender-" + std::to_string(::getpid()));
  const auto whole = directory / "whole", resumed = directory / "resumed";
  farad::spawn(3, [&](farad::Worker& worker) { train(worker, whole, -1); });
  try {
    farad::spawn(3, [&](farad::Worker& worker) { train(worker, resumed, 33); });
  } catch (const farad::Error& lost) {  // Of the worker that died, or of who waited for it: whichever is known first.
    std::cout << lost.what_without_backtrace() << '\n';
  }
  farad::spawn(3, [&](farad::Worker& worker) { train(worker, resumed, -1); });
  farad::spawn(1, [&](farad::Worker& worker) { compare(worker, whole, resumed); });
  fs::remove_all(directory);
}
