// Two processes train one model that lies in memory which both have.

#include <farad/farad.h>
#include <unistd.h>

#include <iostream>

namespace shared = farad::shared;
using torch::nn::Linear;

torch::Tensor loss_of(Linear& module, const torch::Tensor& x) {
  return torch::mse_loss(module(x), x.narrow(1, 0, 2).cos());
}

/// What each of them does. A model is found by its name.
void train(const std::string& name) {
  Linear bound(10, 2), mine(10, 2);
  auto model = shared::Model::attach(name, bound);
  torch::manual_seed(shared::stream_seed(1, model.stream()));  // nobody else's, also not of one that took its seat
  for (int i = 0; i < 200; ++i) {
    model.pull(mine);  // all parameters, of one version
    mine->zero_grad();
    loss_of(mine, torch::randn({8, 10})).backward();
    model.step(mine);  // one optimizer for all: one set of moments, one count of steps
  }
}

int main() {
  torch::set_num_threads(1);  // No threads of libtorch's: spawn forks, and a fork would leave them behind.
  torch::manual_seed(1);
  Linear module(10, 2);
  const std::string name = "example-" + std::to_string(::getpid());
  auto model = shared::Model::create(name, module, torch::optim::AdamOptions(1e-2),  //
                                     {.policy = shared::Policy::Locked});
  const auto x = torch::randn({256, 10});
  const auto before = loss_of(module, x).item<double>();
  farad::spawn(2, [&](farad::Worker&) { train(name); });
  const auto after = loss_of(module, x).item<double>();  // The module sees what others have made of it.
  const auto stats = model.stats();
  std::cout << stats.version << " updates, " << stats.lost << " lost; the loss has " << (after < before ? "" : "not ")
            << "become less\n";
}
