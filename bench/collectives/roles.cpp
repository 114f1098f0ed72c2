#include "collectives/roles.h"

#include <ATen/ops/zeros.h>
#include <farad/collectives.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>

#include "common/member.h"
#include "common/sample.h"

namespace farad::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// As often at every member, so not by the clock.
Sample time_counted(int count, const std::function<void()>& before, const std::function<void()>& once) {
  for (int i = 0; i < 2 + count / 10; ++i) once();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    if (before) before();
    const auto start = Clock::now();
    once();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return summarise(std::move(times));
}

at::Tensor floats(size_t bytes) { return at::zeros({static_cast<int64_t>(bytes / sizeof(float))}); }

Sample measure(Group& group, const Case& what) {
  if (!what.gather) {
    const auto input = floats(what.bytes);
    return time_counted(what.count, {}, [&] { group.all_reduce(input); });
  }
  auto input = floats(what.bytes).requires_grad_();
  return time_counted(what.count, {}, [&] {
    input.mutable_grad().reset();
    group.all_gather_cat(input).sum().backward();
  });
}

/// Of memory that is there already, by every member at once.
Sample measure_copy(Group& group, size_t bytes) {
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  return time_counted(8, [&] { group.barrier(); }, [&] { std::memcpy(to.data(), from.data(), bytes); });
}

}  // namespace

void take_part(const Words& words) {
  Worker worker = join(words, std::stoi(words[3]), std::stoi(words[2]));
  {
    Group group(worker);
    nlohmann::json times;
    for (const auto& what : cases) times[what.name] = measure(group, what);
    times["copy"] = measure_copy(group, largest_bytes);
    if (worker.rank() == 0) std::cout << times << std::endl;
    group.barrier();
  }
  worker.close();
}

void reduce_only(const Words& words) {
  Worker worker = join(words, std::stoi(words[3]), std::stoi(words[2]));
  {
    Group group(worker);
    const Case what{"all_reduce", std::stoul(words[4]), std::stoi(words[5])};
    const nlohmann::json times = measure(group, what);
    if (worker.rank() == 0) std::cout << times << std::endl;
    group.barrier();
  }
  worker.close();
}

}  // namespace farad::bench
