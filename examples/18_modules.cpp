// A module at another worker is described, trained, saved, and moved to a third.
// farad run -n 3 -- 18_modules

#include <farad/farad.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

torch::nn::Linear make_layer(int64_t width) { return torch::nn::Linear(width, 1); }

void train(farad::Worker& worker, const farad::RRef<torch::nn::Linear>& layer, const torch::Tensor& x) {
  farad::DistributedOptimizer<torch::optim::SGD> optimizer(worker, farad::parameters(layer),
                                                           torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 50; ++step) {
    farad::Context context(worker);
    const auto y = layer.rpc_sync<&torch::nn::LinearImpl::forward>(x);
    context.backward({(y - x.sum(1, true)).square().mean()});
    optimizer.step(context);
  }
}

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    const auto x = torch::rand({16, 4});
    const auto give = [&](const auto& layer) { return layer.template rpc_sync<&torch::nn::LinearImpl::forward>(x); };

    auto layer = worker.remote<make_layer>("worker1", 4);
    std::cout << farad::describe(layer) << '\n';
    train(worker, layer, x);

    const std::string file = "/tmp/farad-layer-" + std::to_string(::getpid()) + ".safetensors";
    farad::save(layer, file);
    const auto before = give(layer);
    layer = farad::move_to<make_layer>(worker, layer, "worker2", 4);
    std::cout << "moved to " << layer.owner().name << ": " << (give(layer).equal(before) ? "the same" : "ANOTHER")
              << '\n';

    train(worker, layer, x);
    farad::load(layer, file);
    std::cout << "loaded: " << (give(layer).equal(before) ? "as it was" : "NOT as it was") << '\n';
    std::remove(file.c_str());
  }
  worker.close();
}
