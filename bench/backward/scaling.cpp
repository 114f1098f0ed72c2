#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <farad/autograd.h>
#include <farad/worker.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/service.h"
#include "backward/roles.h"
#include "net/sim/world.h"
#include "worker_core.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;

/// Every message takes as long, so that times tell how many follow on each other.
constexpr auto delay = 50us;

// With a parameter, so that each worker has a gradient to keep.
at::Tensor own_product(const at::Tensor& x) {
  static const auto weight = at::ones({3, 3}).set_requires_grad(true);
  return at::mul(x, weight);
}

at::Tensor along_chain(const at::Tensor& x, int64_t rank, int64_t size) {
  const auto y = own_product(x);
  if (rank + 1 == size) return y;
  return Worker::current().rpc_sync<along_chain>(static_cast<int>(rank + 1), y, rank + 1, size);
}

/// Two below each, numbered level by level.
at::Tensor down_tree(const at::Tensor& x, int64_t rank, int64_t size) {
  auto y = own_product(x);
  std::vector<Future<at::Tensor>> below;
  for (int64_t child = 2 * rank + 1; child <= 2 * rank + 2 && child < size; ++child) {
    below.push_back(Worker::current().rpc_async<down_tree>(static_cast<int>(child), y, child, size));
  }
  for (auto& future : below) y = y + future.wait();
  return y;
}

/// One that asks all others, as with parameters that are spread over servers.
at::Tensor over_star(const at::Tensor& x, int64_t, int64_t size) {
  std::vector<Future<at::Tensor>> others;
  for (int64_t rank = 1; rank < size; ++rank) {
    others.push_back(Worker::current().rpc_async<own_product>(static_cast<int>(rank), x));
  }
  auto y = x;
  for (auto& future : others) y = y + future.wait();
  return y;
}

using Shape = at::Tensor (*)(const at::Tensor&, int64_t, int64_t);
const std::map<std::string, Shape> shapes = {{"chain", along_chain}, {"tree", down_tree}, {"star", over_star}};

class Group {
 public:
  Group(Shape shape, int size)
      : shape_(shape), cores_(static_cast<size_t>(size)), world_(1, {.least_delay = delay, .most_delay = delay}) {}

  nlohmann::json measure() {
    world_.run([&] {
      std::vector<std::unique_ptr<base::Thread>> processes;
      for (size_t rank = 0; rank < cores_.size(); ++rank) {
        processes.push_back(world_.start_worker(base::Rank(static_cast<uint16_t>(rank)),
                                                [this, rank] { live(static_cast<int>(rank)); }));
      }
    });
    return result_;
  }

 private:
  void live(int rank) {
    WorkerOptions options;
    options.rank = rank;
    options.size = static_cast<int>(cores_.size());
    options.rendezvous = "local://scaling";
    options.threads = 1;
    Worker worker = detail::WorkerCore::join_in(world_, options);
    cores_[static_cast<size_t>(rank)] = &detail::WorkerCore::of(worker);
    if (rank == 0) lead(worker);
    worker.close();
  }

  void lead(Worker& worker) {
    detail::WorkerCore::Scope scope(detail::WorkerCore::of(worker));
    auto& runtime = world_.runtime();
    Context context(worker);
    const auto x = at::ones({3, 3}).set_requires_grad(true);
    const auto y = shape_(x, 0, static_cast<int64_t>(cores_.size())).sum();
    // The first few are slower: what sends together what belongs together has to know how long things take.
    for (int pass = 0; pass < 5; ++pass) {
      const uint64_t before = sent();
      const auto start = runtime.now();
      context.backward({y}, {.retain_graph = true});
      const std::chrono::duration<double, std::milli> took = runtime.now() - start;
      runtime.make_parker()->park(runtime.now() + 1s);  // Until all have heard that it has succeeded.
      result_ = {{"ms", took.count()}, {"messages", sent() - before}};
    }
  }

  uint64_t sent() const {
    uint64_t all = 0;
    for (auto* core : cores_) all += core->gradients().backward().sent();
    return all;
  }

  const Shape shape_;
  std::vector<detail::WorkerCore*> cores_;
  nlohmann::json result_;
  net::sim::World world_;  // Ends before what lives in it looks at the rest.
};

}  // namespace

void simulated_pass(const Words& words) {
  std::cout << Group(shapes.at(words.at(0)), std::stoi(words.at(1))).measure() << std::endl;
}

}  // namespace farad::bench
