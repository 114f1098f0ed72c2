// The training of Policy::AllReduced by a Group instead: each process has a module of its own, and gradients travel.

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <farad/collectives.h>
#include <farad/shared.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/member.h"
#include "shared/roles.h"
#include "shared/task.h"

namespace farad::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Those of all, one behind the other, and whether this process wants to go on: so no message is needed to agree on it.
at::Tensor flat(const std::vector<at::Tensor>& parameters, bool goes_on) {
  std::vector<at::Tensor> parts;
  for (const auto& parameter : parameters) parts.push_back(parameter.grad().flatten());
  parts.push_back(at::full({1}, goes_on ? 0.0 : 1.0));
  return at::cat(parts);
}

void step(const std::vector<at::Tensor>& parameters, const at::Tensor& sum, int members) {
  int64_t begin = 0;
  for (const auto& parameter : parameters) {
    const auto part = sum.narrow(0, begin, parameter.numel()).view_as(parameter);
    parameter.detach().sub_(part, rate / members);
    begin += parameter.numel();
  }
}

}  // namespace

void reduce(const Words& words) {
  at::set_num_threads(1);
  const int members = std::stoi(words.at(2)), rank = std::stoi(words.at(3));
  const std::chrono::milliseconds span(std::stoi(words.at(5)));
  Worker worker = join(words, rank, members);
  Group group(worker);
  auto module = make_linear(words.at(4));
  const auto x = make_batches(module, shared::stream_seed(1, static_cast<uint64_t>(rank)));
  const auto parameters = module->parameters();
  group.barrier();
  const auto begun = Clock::now();
  auto counted_from = begun;
  int64_t counted = -1;  // Those before warm up.
  for (int64_t i = 0;; ++i) {
    for (const auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
    loss_of(module, x[i % x.size(0)]).backward();
    const c10::NoGradGuard no_grad;
    const auto now = Clock::now();
    const auto sum = group.all_reduce(flat(parameters, counted < least_steps || now < begun + span));
    step(parameters, sum, members);
    if (counted >= 0 || now > begun + span / 10) ++counted;
    if (counted == 0) counted_from = Clock::now();
    if (sum[-1].item<double>() > 0) break;
  }
  const std::chrono::duration<double> seconds = Clock::now() - counted_from;
  if (rank == 0) std::cout << nlohmann::json(static_cast<double>(counted * members) / seconds.count()) << std::endl;
  worker.close();
}

}  // namespace farad::bench
