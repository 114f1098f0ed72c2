#include "backward/roles.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <farad/autograd.h>
#include <farad/worker.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <thread>

#include "autograd/service.h"
#include "common/member.h"
#include "common/sample.h"
#include "worker_core.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What is called. PyTorch's side calls torch.mul.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return at::mul(a, b); }

constexpr int64_t large_elements = (64 << 20) / sizeof(float);

/// Of the callee: the gradient of what it returns is one that has to travel, and nothing has to be computed with it.
at::Tensor large_parameter() {
  static const auto leaf = at::ones({large_elements}).set_requires_grad(true);
  return leaf.view({large_elements});
}

/// What waits for others to go with it goes now, and is counted.
uint64_t pass_messages() {
  auto& backward = detail::WorkerCore::current()->gradients().backward();
  backward.send_all();
  return backward.sent();
}

/// What one thread does over and over: a context, so many calls one after the other, and a pass over all of them.
class Chain {
 public:
  Chain(Worker& worker, int calls, Mode mode = Mode::Smart) : worker_(worker), calls_(calls), mode_(mode) {}

  void operator()() const {
    Context context(worker_);
    at::Tensor y = a_;
    for (int i = 0; i < calls_; ++i) y = worker_.rpc_sync<product>(1, y, b_);
    BackwardOptions options;
    options.mode = mode_;
    context.backward({y.sum()}, options);
  }

 private:
  Worker& worker_;
  const int calls_;
  const Mode mode_;
  const at::Tensor a_ = at::rand({3, 3}).set_requires_grad(true), b_ = at::rand({3, 3}).set_requires_grad(true);
};

/// Passes a second by so many threads, each with contexts of its own.
double pass_rate(Worker& worker, int threads) {
  std::atomic<uint64_t> count{0};
  const auto start = Clock::now();
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&] {
      const Chain chain(worker, 1);
      for (; Clock::now() < start + 400ms; ++count) chain();
    });
  }
  for (auto& caller : callers) caller.join();
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

/// Alternately, so that what else the machine does falls on both: the medians of each, and of their ratios.
nlohmann::json compare_modes(Worker& worker, int calls) {
  const Chain smart(worker, calls), fast(worker, calls, Mode::Fast);
  std::vector<double> smarts, fasts, ratios;
  for (int round = 0; round < 9; ++round) {
    smarts.push_back(time_each(smart, 60ms).p50);
    fasts.push_back(time_each(fast, 60ms).p50);
    ratios.push_back(smarts.back() / fasts.back());
  }
  return {{"smart", summarise(smarts).p50}, {"fast", summarise(fasts).p50}, {"ratio", summarise(ratios).p50}};
}

/// The pass alone, of a gradient of 64 MiB that goes to the other worker; beside one copy of it.
nlohmann::json large_gradient(Worker& worker) {
  const auto gradient = at::ones({large_elements});
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    Context context(worker);
    const auto root = worker.rpc_sync<large_parameter>(1);
    const auto start = Clock::now();
    context.backward({root}, {.grad_tensors = {gradient}});
    if (i >= 2) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  const auto copy = at::ones({large_elements});
  const auto memcpy = time_each([&] { std::memcpy(copy.data_ptr(), gradient.data_ptr(), gradient.nbytes()); }, 200ms);
  return {{"pass", summarise(times)}, {"memcpy", memcpy}};
}

/// Both workers' messages for one pass, beside what the protocol may need: M gradients, one message of nulls, START
/// both ways, a DONE and a COMMIT.
nlohmann::json count_messages(Worker& worker, int calls, int unused) {
  const auto a = at::rand({3, 3}).set_requires_grad(true), b = at::rand({3, 3}).set_requires_grad(true);
  Context context(worker);
  at::Tensor y = a;
  for (int i = 0; i < calls; ++i) y = worker.rpc_sync<product>(1, y, b);
  for (int i = 0; i < unused; ++i) worker.rpc_sync<product>(1, y, b);
  const auto sent = [&] { return worker.rpc_sync<pass_messages>(0) + worker.rpc_sync<pass_messages>(1); };
  const uint64_t before = sent();
  context.backward({y.sum()});
  const uint64_t gradients = 2 * static_cast<uint64_t>(calls), nulls = unused ? 2 : 0;
  return {{"sent", sent() - before}, {"bound", gradients + nulls + 2 + 1 + 1}};
}

}  // namespace

void pass_client(const Words& words) {
  Worker worker = join(words, 0);
  nlohmann::json result;
  result["one call"] = time_each(Chain(worker, 1), 600ms);
  result["ten calls"] = time_each(Chain(worker, 10), 600ms);
  for (int threads : {1, 4, 16}) result["threads"][std::to_string(threads)] = pass_rate(worker, threads);
  result["modes"] = {{"one call", compare_modes(worker, 1)}, {"ten calls", compare_modes(worker, 10)}};
  result["large"] = large_gradient(worker);
  result["messages"] = {{"one call", count_messages(worker, 1, 0)},
                        {"ten calls", count_messages(worker, 10, 0)},
                        {"ten calls, five unused", count_messages(worker, 10, 5)}};
  std::cout << result << std::endl;
  worker.close();
}

void pass_server(const Words& words) { join(words, 1).close(); }

}  // namespace farad::bench
