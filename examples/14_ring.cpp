// PyTorch's end to end example: each worker makes two tensors at the next one, and takes one step with them.

#include <farad/farad.h>

#include <cmath>
#include <iostream>

torch::Tensor random_tensor() { return torch::rand({3, 3}, torch::requires_grad()); }

void run(farad::Worker& worker) {
  const int next = (worker.rank() + 1) % worker.size();
  farad::Context context(worker);

  // Forward pass: references to values at the next worker.
  const auto first = worker.remote<random_tensor>(next);
  const auto second = worker.remote<random_tensor>(next);
  const auto loss = first.to_here() + second.to_here();

  context.backward({loss.sum()});

  farad::DistributedOptimizer<torch::optim::SGD> optimizer(worker, {first, second}, torch::optim::SGDOptions(0.05));
  optimizer.step(context);

  const auto moved = (loss - first.to_here() - second.to_here()).mean().item<double>();
  std::cout << worker.self().name << ": one step moved the sum by " << std::round(moved * 100) / 100 << '\n';
}

int main() { farad::spawn(2, run); }
