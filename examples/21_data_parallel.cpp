// Data parallel training: the same network at every worker, each with its own rows, is one network on all rows. Workers
// have different numbers of rows and of batches.

#include <farad/farad.h>

#include <iostream>

constexpr int workers = 3;
int batches_of(int rank) { return 20 + 5 * rank; }

torch::Tensor batch_of(int rank, int number) {
  torch::manual_seed(1000 * rank + number);
  return torch::rand({4 + rank, 3}) * 2 - 1;
}

torch::nn::Sequential make_network() {
  return torch::nn::Sequential(torch::nn::Linear(3, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

torch::Tensor loss_of(torch::nn::Sequential& network, const torch::Tensor& x) {
  return torch::mse_loss(network->forward(x), x.prod(1, true));
}

torch::Tensor in_one_process(torch::nn::Sequential network) {
  torch::optim::Adam optimizer(network->parameters(), 0.02);
  for (int number = 0; number < batches_of(workers - 1); ++number) {
    std::vector<torch::Tensor> rows;
    for (int rank = 0; rank < workers; ++rank) {
      if (number < batches_of(rank)) rows.push_back(batch_of(rank, number));
    }
    optimizer.zero_grad();
    loss_of(network, torch::cat(rows)).backward();
    optimizer.step();
  }
  return torch::nn::utils::parameters_to_vector(network->parameters());
}

void run(farad::Worker& worker) {
  torch::manual_seed(17 + worker.rank());
  auto network = make_network();
  farad::DataParallel parallel(network, farad::Group(worker));  // From here on all have the first one's parameters.
  auto alone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(network->clone());
  torch::optim::Adam optimizer(network->parameters(), 0.02);
  for (int number = 0; number < batches_of(worker.rank()); ++number) {
    const auto batch = batch_of(worker.rank(), number);
    parallel.set_weight(static_cast<double>(batch.size(0)));
    optimizer.zero_grad();
    loss_of(network, batch).backward();  // Gradients are those of all rows, everywhere.
    optimizer.step();
  }
  parallel.join([&] { optimizer.step(); });  // Until the others have no batches left either.
  if (worker.rank() != 0) return;
  const auto parameters = torch::nn::utils::parameters_to_vector(network->parameters());
  const bool equal = torch::allclose(parameters, in_one_process(torch::nn::Sequential(alone)), 1e-3, 1e-4);
  std::cout << "trained " << (equal ? "like one process" : "differently") << std::endl;
}

int main() { farad::spawn(workers, run); }
