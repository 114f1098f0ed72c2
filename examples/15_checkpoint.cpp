// A layer on another worker whose activations are not kept: it is computed again in the backward pass.

#include <farad/farad.h>

#include <atomic>
#include <iostream>

std::atomic<int> computed{0};

torch::Tensor layer(torch::Tensor x) {
  ++computed;
  return x * x * x;
}
int times_computed() { return computed; }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    farad::Context context(worker);
    const auto x = torch::full({1}, 2.0, torch::requires_grad());
    const auto y = farad::checkpoint([&](torch::Tensor input) { return worker.rpc_sync<layer>("worker1", input); }, x);
    std::cout << "computed: " << worker.rpc_sync<times_computed>("worker1") << '\n';

    context.backward({y.sum()});
    std::cout << "computed: " << worker.rpc_sync<times_computed>("worker1") << '\n';
    std::cout << "gradient: " << context.gradient(x).item<double>() << '\n';  // 3 x^2
  }
  worker.close();
}
