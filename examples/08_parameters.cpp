// A module that lives on another worker: its methods are called there, its parameters are referred to from here, and
// references are lent to third workers like any other argument.
// farad run -n 3 -- 08_parameters

#include <farad/farad.h>

#include <iostream>

torch::nn::Linear make_model() { return torch::nn::Linear(4, 2); }

void fill(torch::Tensor& parameter, double value) {
  torch::NoGradGuard no_grad;
  parameter.fill_(value);
}

/// On a third worker, which was lent what it counts.
int64_t count(std::vector<farad::RRef<torch::Tensor>> parameters) {
  int64_t total = 0;
  for (const auto& parameter : parameters) total += parameter.to_here().numel();
  return total;
}

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    auto model = worker.remote<make_model>("worker1");
    auto parameters = farad::parameters(model);
    for (auto& parameter : parameters) parameter.rpc_sync<fill>(0.5);
    const auto out = model.rpc_sync<&torch::nn::LinearImpl::forward>(torch::ones({1, 4}));
    std::cout << "model gives " << out[0][0].item<double>() << '\n';
    std::cout << "worker2 counts " << worker.rpc_sync<count>("worker2", parameters) << " numbers\n";
  }
  worker.close();
}
