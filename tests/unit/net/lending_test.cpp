// Two workers that share memory, in one process so that both sides can be looked at. (Processes of their own are in
// tests/process/fabric.)

#include "net/shm/lending.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/ScopeExit.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <iterator>
#include <set>

#include "wire/incoming.h"
#include "wire/outgoing.h"

namespace farad::net {
namespace {

constexpr int64_t elements = 100'000;  // 400 KB: large enough to be lent.

struct Side {
  std::shared_ptr<shm::Arena> arena = shm::Arena::make(size_t{8} << 20);
  std::shared_ptr<ShmLending> lending;
};

struct Lending : testing::Test {
  Lending() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    for (int i = 0; i < 2; ++i) {
      sockets[i] = base::Fd(ends[i]);
      sides[i].lending = std::make_shared<ShmLending>(sides[i].arena, shm::Process::behind(ends[i]), ends[i]);
    }
  }

  /// What the other side gets when side `from` sends this.
  at::Tensor send(int from, at::Tensor tensor) {
    wire::Message message;
    message.tensors.push_back(std::move(tensor));
    wire::Outgoing out;
    wire::Outgoing::make(message, {}, out, sides[from].lending.get()).raise();
    frame_bytes = out.size();
    wire::Incoming in({}, wire::BufferPool::make(0));
    in.borrow_from(sides[1 - from].lending.get());
    while (!out.done()) {
      iovec slots[8];
      const int count = out.gather(slots, 8);
      for (int i = 0; i < count; ++i) {
        size_t consumed = 0;
        in.feed({static_cast<const char*>(slots[i].iov_base), slots[i].iov_len}, consumed).raise();
        EXPECT_EQ(consumed, slots[i].iov_len);
        out.advance(consumed);
      }
    }
    EXPECT_TRUE(in.complete());
    return std::move(in.take().tensors.at(0));
  }

  base::Fd sockets[2];
  Side sides[2];
  uint64_t frame_bytes = 0;
};

TEST_F(Lending, LargeTensorsDoNotGoThroughTheStream) {
  const auto tensor = at::arange(elements);
  const auto received = send(0, tensor);
  EXPECT_TRUE(at::equal(received, tensor));
  EXPECT_LT(frame_bytes, 200u);
}

TEST_F(Lending, SmallOnesDo) {
  send(0, at::ones({10}));
  EXPECT_GT(frame_bytes, 10 * sizeof(float));
}

TEST_F(Lending, StridesAndRequiresGradTravelAlong) {
  auto tensor = at::ones({400, 500}).t().requires_grad_();
  auto received = send(0, tensor);
  EXPECT_EQ(received.strides(), tensor.strides());
  EXPECT_TRUE(received.requires_grad());
  EXPECT_TRUE(received.is_leaf());
}

TEST_F(Lending, TheBlockIsFreeWhenTheReceivedTensorDies) {
  auto received = send(0, at::ones({elements}));
  EXPECT_EQ(sides[0].arena->stats().lent, 1u);
  received.reset();
  EXPECT_EQ(sides[0].arena->stats().lent, 0u);
  std::set<const void*> memory;
  for (int i = 0; i < 20; ++i) memory.insert(send(0, at::ones({elements})).data_ptr());
  EXPECT_LE(memory.size(), 11u) << "used again, in turn";
}

TEST_F(Lending, ATensorOutlivesTheConnectionItCameThrough) {
  auto received = send(0, at::ones({elements}));
  sides[0] = sides[1] = {};
  EXPECT_EQ(received.sum().item<int64_t>(), elements);
}

TEST_F(Lending, WhatIsSentBackGoesHomeWithoutACopy) {
  auto there = send(0, at::ones({elements}));
  there.mul_(2);
  auto back = send(1, std::move(there));
  EXPECT_EQ(sides[1].arena->stats().bytes, 0u) << "side 1 has copied nothing";
  EXPECT_EQ(sides[0].arena->stats().lent, 0u);
  EXPECT_EQ(back.sum().item<int64_t>(), 2 * elements);
  // And again from home, as it is.
  const auto before = sides[0].arena->stats().bytes;
  there = send(0, std::move(back));
  EXPECT_EQ(sides[0].arena->stats().bytes, before);
  EXPECT_EQ(there.sum().item<int64_t>(), 2 * elements);
}

TEST_F(Lending, BeyondTheArenaTensorsGoThroughTheStream) {
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 40; ++i) {
    kept.push_back(send(0, at::ones({elements}) * i));
    EXPECT_EQ(kept.back()[0].item<int>(), i);
  }
  EXPECT_GT(frame_bytes, elements * sizeof(float));
  EXPECT_LE(sides[0].arena->stats().bytes, size_t{8} << 20);
}

TEST_F(Lending, WhoeverKeepsManyTensorsRunsOutOfNoDescriptors) {
  const auto open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  };
  const size_t before = open();
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const auto restore = c10::make_scope_exit([&] { ::setrlimit(RLIMIT_NOFILE, &usual); });
  rlimit few = usual;
  few.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  sides[0].arena = shm::Arena::make(size_t{1} << 30);
  sides[0].lending =
      std::make_shared<ShmLending>(sides[0].arena, shm::Process::behind(sockets[0].get()), sockets[0].get());

  std::vector<at::Tensor> kept;
  for (int i = 0; i < 300; ++i) kept.push_back(send(0, at::full({elements}, static_cast<float>(i))));

  EXPECT_LE(open(), before + 256 / 4 + 2);
  EXPECT_GT(sides[0].arena->stats().lent, 10u);
  EXPECT_GT(frame_bytes, elements * sizeof(float)) << "the last ones went through the stream";
  for (int i = 0; i < 300; ++i) EXPECT_EQ(kept[i][elements - 1].item<int>(), i);
}

TEST_F(Lending, AHandleToNothingIsRefused) {
  at::DataPtr memory;
  EXPECT_EQ(sides[0].lending->borrow({77, 1}, 8, memory).code(), base::Code::Protocol);
  EXPECT_EQ(sides[0].lending->borrow({77, 2}, 8, memory).code(), base::Code::Protocol);
  EXPECT_EQ(sides[0].lending->borrow({77, 3}, 8, memory).code(), base::Code::Protocol);
}

// The two wrong gradients that the rule of hand_over.h prevents. In both, d/dx of x * x at x = 3 must be 6; memory
// shared by mistake would make it 200, because the version counter of one side knows nothing of the other's change.

TEST_F(Lending, ATensorThatTheSendersGraphSavedIsNotGivenAway) {
  auto first = send(1, at::full({elements}, 3.0f));  // Lies in a block that side 0 could give away ...
  first.requires_grad_();
  auto y = first * first;  // ... but for the graph that has saved it.
  auto leaf = first;
  auto there = send(0, std::move(first));
  {
    at::NoGradGuard no_grad;
    there.fill_(100);
  }
  const auto gradient = torch::autograd::grad({y.sum()}, {leaf})[0];
  EXPECT_EQ(gradient[0].item<float>(), 6);
}

TEST_F(Lending, WhatTheSenderChangesLaterDoesNotReachTheReceiversGraph) {
  auto tensor = at::full({elements}, 3.0f);
  auto there = send(0, tensor).requires_grad_();
  auto y = there * there;
  tensor.fill_(100);
  const auto gradient = torch::autograd::grad({y.sum()}, {there})[0];
  EXPECT_EQ(gradient[0].item<float>(), 6);
}

}  // namespace
}  // namespace farad::net
