// A gradient penalty over a call: gradients that are differentiated again, at the worker that computed them.

#include <farad/farad.h>

#include <iostream>

torch::Tensor cube(torch::Tensor x) { return x * x * x; }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    farad::Context context(worker);
    const auto x = torch::full({1}, 2.0, torch::requires_grad());
    const auto loss = worker.rpc_sync<cube>("worker1", x).sum();

    const auto slope = farad::grad(context, {loss}, {x}, {.create_graph = true}).front();  // 3 x^2
    context.backward({(slope * slope).sum()});                                             // of 9 x^4: 36 x^3

    std::cout << "slope: " << slope.item<double>() << '\n';
    std::cout << "of its square: " << context.gradient(x).item<double>() << '\n';
  }
  worker.close();
}
