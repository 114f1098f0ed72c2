// Three ways to train one model by several processes that are found in answers on the web, and the right one, each with
// what the audit says of it. All four learn; only one is right.

#include <farad/farad.h>

#include <iostream>
#include <mutex>

namespace audit = farad::audit;

audit::Learner make(const audit::Options& options) {
  torch::manual_seed(options.seed);
  torch::nn::Linear model(10, 2);
  model->to(options.dtype);
  const auto loss = [](torch::nn::Linear& module, const audit::Batch& batch) {
    return torch::mse_loss(module(batch.tensors[0]), batch.tensors[1]);
  };
  return audit::learner(model, loss, [options](int worker, uint64_t sequence) -> audit::Batch {
    using farad::shared::stream_seed;
    torch::manual_seed(stream_seed(stream_seed(options.seed, worker), sequence));
    const auto x = torch::randn({8, 10}, options.dtype);
    return {{x, x.narrow(1, 0, 2).cos()}, 8};
  });
}

/// Each process puts the gradient of the first parameter into a queue; the sum of them is what is applied.
void queue_of_gradients(const audit::Delivery& delivery) {
  delivery.model.step({delivery.gradients[0] * delivery.workers, torch::Tensor()});
}

/// A lock of the threads of one process, and an optimizer of that process, on parameters that all processes share.
void lock_of_threads(const audit::Delivery& delivery) {
  static std::mutex lock;
  static torch::optim::SGD optimizer(delivery.parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  const std::lock_guard held(lock);
  for (size_t i = 0; i < delivery.parameters.size(); ++i) {
    delivery.parameters[i].mutable_grad() = delivery.gradients[i];
  }
  optimizer.step();
}

/// The parameters of all processes are averaged; that any of them has stepped is forgotten.
void averages_without_steps(const audit::Delivery&) {}

int main() {
  const audit::Training right("farad, locked", make, torch::optim::SGDOptions(0.05).momentum(0.9));
  if (const auto code = audit::requested(right)) return *code;  // This was started by `farad audit -- 20_audit`.
  const auto judge = [&](const char* name, void (*deliver)(const audit::Delivery&)) {
    auto training = right;
    training.name = name;
    training.deliver = deliver;
    const auto report = audit::run(training);
    std::cout << name << ": " << audit::to_string(report.verdict);
    for (const auto& check : report.failed()) std::cout << ' ' << check;
    std::cout << '\n';
  };
  judge("queue of gradients", queue_of_gradients);
  judge("lock of threads", lock_of_threads);
  judge("averages without steps", averages_without_steps);
  judge("farad, locked", nullptr);
}
