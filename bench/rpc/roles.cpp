#include "rpc/roles.h"

#include <ATen/ops/neg.h>
#include <ATen/ops/ones.h>
#include <farad/rref.h>
#include <farad/worker.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <iostream>
#include <thread>

#include "common/member.h"
#include "common/sample.h"

namespace farad::bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Outlined, so that callgrind can be told to count in here only.
[[gnu::noinline]] void small_calls(const std::function<void()>& call, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) call();
}

namespace {

// What is called. PyTorch's side calls torch.neg and torch.select.
at::Tensor negative(const at::Tensor& x) { return at::neg(x); }
at::Tensor first(const at::Tensor& x) { return x.select(0, 0); }

uint64_t resident_bytes() {
  uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

double per_second(uint64_t count, Clock::time_point since) {
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - since).count();
}

/// Calls a second by so many threads that wait for each.
double sync_rate(const Worker& worker, int threads) {
  const auto small = at::ones({4});
  std::atomic<uint64_t> count{0};
  const auto start = Clock::now();
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&] {
      for (; Clock::now() < start + 400ms; ++count) worker.rpc_sync<negative>(1, small);
    });
  }
  for (auto& caller : callers) caller.join();
  return per_second(count, start);
}

/// Calls a second by one thread that has up to 256 under way.
double pipelined_rate(const Worker& worker) {
  const auto small = at::ones({4});
  std::deque<Future<at::Tensor>> under_way;
  uint64_t count = 0;
  const auto start = Clock::now();
  for (; Clock::now() < start + 400ms; ++count) {
    if (under_way.size() == 256) {
      under_way.front().wait();
      under_way.pop_front();
    }
    under_way.push_back(worker.rpc_async<negative>(1, small));
  }
  for (auto& future : under_way) future.wait();
  return per_second(count, start);
}

nlohmann::json memory_over(const Worker& worker, uint64_t calls) {
  const auto small = at::ones({4});
  const auto grown = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
  const uint64_t mine = resident_bytes(), theirs = worker.rpc_sync<resident_bytes>(1);
  for (uint64_t i = 0; i < calls; ++i) worker.rpc_sync<negative>(1, small);
  return {{"calls", calls},
          {"caller", grown(resident_bytes(), mine)},
          {"callee", grown(worker.rpc_sync<resident_bytes>(1), theirs)}};
}

}  // namespace

void call_client(const Words& words) {
  Worker worker = join(words, 0);
  const auto small = at::ones({4});
  nlohmann::json result;
  result["call"] = time_each([&] { worker.rpc_sync<negative>(1, small); }, 400ms);
  result["by name"] = time_each([&] { worker.rpc_sync(1, "aten::neg", {small}); }, 400ms);
  result["remote + to_here"] = time_each([&] { worker.remote<negative>(1, small).to_here(); }, 400ms);
  for (int64_t mib : {1, 16}) {
    const auto large = at::ones({mib << 18});
    result[std::to_string(mib) + " MiB"] = time_each([&] { worker.rpc_sync<first>(1, large); }, 400ms);
  }
  for (int threads : {1, 4, 16}) result["threads"][std::to_string(threads)] = sync_rate(worker, threads);
  pipelined_rate(worker);
  result["pipelined"] = pipelined_rate(worker);
  result["memory"] = memory_over(worker, std::stoull(words[2]));
  std::cout << result << std::endl;
  worker.close();
}

void count_client(const Words& words) {
  Worker worker = join(words, 0);
  const auto small = at::ones({4});
  const std::function<void()> call = [&] { worker.rpc_sync<negative>(1, small); };
  for (int i = 0; i < 100; ++i) call();
  small_calls(call, std::stoull(words[2]));
  std::cout << "{}" << std::endl;
  worker.close();
}

void call_server(const Words& words) { join(words, 1).close(); }

}  // namespace farad::bench
