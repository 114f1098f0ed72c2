// Three ways to train one model by several processes that are found in answers on the web, and the right one, each with
// what the audit says of it. Two of the three learn something nevertheless, which is why nobody notices.

#include <farad/farad.h>
#include <poll.h>
#include <unistd.h>

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

/// A queue between processes: what they put into it comes out in that order, and does not say whose it is or of when.
class Queue {
 public:
  Queue() { TORCH_CHECK(::pipe(ends_) == 0); }  // Each tensor is so small that a pipe takes it whole.
  void put(const torch::Tensor& one) { TORCH_CHECK(::write(ends_[1], one.data_ptr(), one.nbytes()) > 0); }
  /// Waits for so many of them, one behind the other in a new dimension; fewer only if nobody puts any for a second,
  /// as when the audit tries the optimizer by a gradient of one process.
  torch::Tensor get(int most, torch::Tensor one) {
    std::vector<torch::Tensor> all;
    for (pollfd full{ends_[0], POLLIN, 0}; most > 0 && ::poll(&full, 1, 1'000) > 0; --most) {
      TORCH_CHECK(::read(ends_[0], one.data_ptr(), one.nbytes()) > 0);
      all.push_back(one.clone());
    }
    return torch::stack(all);
  }

 private:
  int ends_[2];
};
Queue gradients, copies;  // Made before there are several processes.

/// Each process puts its first parameter's gradient into a queue. One takes as many as there are processes, whosever
/// and whenever they are, and their sum is what it applies.
void queue_of_gradients(const audit::Delivery& delivery) {
  gradients.put(delivery.gradients[0].contiguous());
  if (delivery.worker != 0) return;
  const auto all = gradients.get(delivery.workers, torch::empty({2, 10}, delivery.gradients[0].options()));
  delivery.model.step({all.sum(0), torch::Tensor()});
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

/// Each process puts its copy of the parameters into a queue, and the model becomes the mean of as many as there are
/// processes. That none of them has stepped its copy is forgotten.
void averages_without_steps(const audit::Delivery& delivery) {
  const torch::NoGradGuard no_grad;
  const auto weight = delivery.parameters[0], bias = delivery.parameters[1];
  copies.put(torch::cat({weight, bias.unsqueeze(1)}, 1));
  if (delivery.worker != 0) return;
  const auto mean = copies.get(delivery.workers, torch::empty({2, 11}, weight.options())).mean(0);
  weight.copy_(mean.narrow(1, 0, 10));
  bias.copy_(mean.select(1, 10));
}

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
