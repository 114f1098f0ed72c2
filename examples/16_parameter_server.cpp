// A parameter server: worker0 holds the weight, the others train it on data of their own. First together, one step for
// all of them; then each by itself, as fast as it can.

#include <farad/farad.h>

#include <cmath>
#include <iostream>

using Weight = farad::RRef<torch::Tensor>;
using Optimizer = farad::DistributedOptimizer<torch::optim::SGD>;

/// The data of one trainer: y = 2x, each at another part of the line.
torch::Tensor inputs() { return torch::linspace(0, 1, 8) + farad::Worker::current().rank(); }

torch::Tensor loss_here(Weight weight) {
  const auto x = inputs();
  return (weight.to_here() * x - 2 * x).square().mean();
}

void together(farad::Worker& worker, const Weight& weight, int steps) {
  Optimizer optimizer(worker, {weight}, torch::optim::SGDOptions(0.02));
  for (int step = 0; step < steps; ++step) {
    farad::Context context(worker);
    std::vector<farad::Future<torch::Tensor>> losses;
    for (int rank = 1; rank < worker.size(); ++rank) losses.push_back(worker.rpc_async<loss_here>(rank, weight));
    auto sum = torch::zeros({});
    for (const auto& loss : losses) sum = sum + loss.wait();
    context.backward({sum});
    optimizer.step(context);
  }
}

/// Runs at a trainer; its optimizer and those of the others take turns at the server.
int train_alone(Weight weight, int steps) {
  auto& worker = farad::Worker::current();
  Optimizer optimizer(worker, {weight}, torch::optim::SGDOptions(0.02));
  for (int step = 0; step < steps; ++step) {
    farad::Context context(worker);
    context.backward({loss_here(weight)});
    optimizer.step(context);
  }
  return steps;
}

double error_of(const Weight& weight) { return std::abs(weight.to_here().item<double>() - 2); }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    auto weight = Weight::local(worker, torch::zeros({1}, torch::requires_grad()));
    together(worker, weight, 60);
    std::cout << "together: " << (error_of(weight) < 1e-3 ? "learned" : "not learned") << '\n';

    weight = Weight::local(worker, torch::zeros({1}, torch::requires_grad()));
    std::vector<farad::Future<int>> trainers;
    for (int rank = 1; rank < worker.size(); ++rank)
      trainers.push_back(worker.rpc_async<train_alone>(rank, weight, 60));
    int steps = 0;
    for (const auto& trainer : trainers) steps += trainer.wait();
    std::cout << "each by itself: " << (error_of(weight) < 1e-3 ? "learned" : "not learned") << " in " << steps
              << " steps\n";
  }
  worker.close();
}
