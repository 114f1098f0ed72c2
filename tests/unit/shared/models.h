#pragma once

#include <ATen/ATen.h>
#include <farad/shared.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "shared/broker.h"
#include "shared/segment.h"

/// What the tests of models in shared memory have in common.
namespace farad::shared {

using torch::nn::Linear;

/// Names are of the machine, so each test needs its own.
inline std::string fresh_name() {
  static int count = 0;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

inline Linear linear() {
  at::manual_seed(1);
  return Linear(4, 3);
}

/// The same for each round, whoever asks.
inline void set_gradients(Linear& module, int round) {
  at::manual_seed(100 + round);
  for (auto& parameter : module->parameters()) parameter.mutable_grad() = at::randn_like(parameter.detach());
}

/// What a model of that name lies in, for a test to put there what another build or a killed process would have left.
inline std::shared_ptr<Segment> segment_of(const std::string& name) {
  std::shared_ptr<Segment> segment;
  std::unique_ptr<Broker> broker;
  Broker::fetch(name, base::Clock::now() + std::chrono::seconds(10), segment, broker).raise();
  return segment;
}

template <class E>
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

/// What a test is called that is of one policy.
inline std::string name_of_policy(const testing::TestParamInfo<Policy>& info) {
  constexpr const char* names[] = {"Locked", "Hogwild", "AllReduced", "Managed", "Averaged"};
  return names[static_cast<int>(info.param)];
}

inline void expect_equal(const Linear& a, const Linear& b) {
  EXPECT_TRUE(at::equal(a->weight, b->weight));
  EXPECT_TRUE(at::equal(a->bias, b->bias));
}

}  // namespace farad::shared
