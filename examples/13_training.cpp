// Training: a weight on worker1 and a bias on worker2 learn y = 3x + 1, stepped where they live.

#include <farad/farad.h>

#include <cmath>
#include <iostream>

torch::Tensor make_parameter() { return torch::zeros({1}, torch::requires_grad()); }
torch::Tensor predict(torch::Tensor& weight, torch::Tensor x) { return weight * x; }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    const auto weight = worker.remote<make_parameter>("worker1");
    const auto bias = worker.remote<make_parameter>("worker2");
    const auto x = torch::linspace(-1, 1, 21);
    const auto y = 3 * x + 1;

    farad::DistributedOptimizer<torch::optim::SGD> optimizer(worker, {weight, bias}, torch::optim::SGDOptions(0.5));
    for (int step = 0; step < 60; ++step) {
      farad::Context context(worker);
      const auto loss = (weight.rpc_sync<predict>(x) + bias.to_here() - y).square().mean();
      context.backward({loss});
      optimizer.step(context);
    }
    std::cout << "weight " << std::round(weight.to_here().item<double>() * 100) / 100 << ", bias "
              << std::round(bias.to_here().item<double>() * 100) / 100 << '\n';
  }
  worker.close();
}
