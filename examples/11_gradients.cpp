// Gradients over calls: a model whose first half lives on worker1, and a call whose result nobody uses.

#include <farad/farad.h>

#include <iostream>

torch::Tensor multiply(torch::Tensor a, torch::Tensor b) { return a * b; }
torch::Tensor make_weight() { return torch::full({3}, 2.0, torch::requires_grad()); }

/// What this worker has accumulated in the context of the call.
torch::Tensor gradient_of(farad::RRef<torch::Tensor> weight) {
  auto& worker = farad::Worker::current();
  return farad::gradients(worker, farad::current_context_id()).find(weight.local_value());
}

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    farad::Context context(worker);  // Records every call made in this scope.
    const auto x = torch::ones({3}, torch::requires_grad());
    const auto weight = worker.remote<make_weight>("worker1");

    const auto y = worker.rpc_sync<multiply>("worker1", x, x) * weight.to_here();
    const auto unused = worker.rpc_sync<multiply>("worker1", x, y);  // No loss depends on it; nothing waits for it.
    context.backward({y.sum()});

    std::cout << "of x: " << context.gradient(x).sum().item<double>() << '\n';
    std::cout << "of the weight at worker1: " << worker.rpc_sync<gradient_of>("worker1", weight).sum().item<double>()
              << '\n';
    std::cout << "x.grad is " << (x.grad().defined() ? "set" : "untouched") << '\n';
  }
  worker.close();
}
