// A function runs on another worker, as if it were here.
// farad run -n 2 -- 01_call

#include <farad/farad.h>

#include <iostream>

torch::Tensor my_add(torch::Tensor a, torch::Tensor b) { return a + b; }

int main() {
  auto worker = farad::Worker::join();  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  if (worker.rank() == 0) {
    auto sum = worker.rpc_sync<my_add>("worker1", torch::ones({2}), torch::full({2}, 2.0f));
    std::cout << "worker1 says " << sum[0].item<float>() << '\n';

    // Several at once, and what to do with the results when they are there.
    auto first = worker.rpc_async<my_add>("worker1", sum, sum);
    auto norm = first.then([](const torch::Tensor& t) { return t.norm().item<double>(); });
    std::cout << "its norm is " << norm.wait() << '\n';
  }
  worker.close();  // waits until every member is done
}
