#include <gtest/gtest.h>

#include "unit/net/rendezvous_support.h"

namespace farad::net::test {
namespace {

/// Time is a number; nobody ever wakes anybody, so a park lasts until its deadline, which is now.
class LonelyRuntime final : public base::Runtime {
 public:
  base::TimePoint now() const override { return now_; }
  std::unique_ptr<base::Parker> make_parker() override { return std::make_unique<Parker>(*this); }
  std::unique_ptr<base::Thread> start(std::string, std::function<void()>) override { return nullptr; }

 private:
  struct Parker final : base::Parker {
    explicit Parker(LonelyRuntime& r) : runtime(r) {}
    bool park(base::TimePoint deadline) override {
      runtime.now_ = std::max(runtime.now_, deadline);
      return false;
    }
    void unpark() override {}
    LonelyRuntime& runtime;
  };

  base::TimePoint now_{};
};

TEST(RendezvousLocal, WaitsOnNothingButTheRuntime) {
  LonelyRuntime runtime;
  const auto begin = runtime.now();
  Joiner joiner("local://lonely", member(0), 2, {.timeout = 24h, .runtime = &runtime});
  expect_failure(joiner, base::Code::Timeout, {"rank 1"});
  EXPECT_EQ(runtime.now() - begin, 24h);
}

TEST(RendezvousLocal, WorkersOfTwoRuntimesDoNotMeet) {
  LonelyRuntime here, there;
  Joiner first("local://same name", member(0), 2, {.timeout = 1h, .runtime = &here});
  Joiner second("local://same name", member(1), 2, {.timeout = 1h, .runtime = &there});
  expect_failure(first, base::Code::Timeout, {"rank 1"});
  expect_failure(second, base::Code::Timeout, {"rank 0"});
}

}  // namespace
}  // namespace farad::net::test
