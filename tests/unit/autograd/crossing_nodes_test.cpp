#include "autograd/crossing_nodes.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace farad::autograd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Passage passage{.context = ContextId(42), .pair = PairId(7), .peer = base::Rank(3), .call = "forward"};

TEST(CrossingNodes, ASendPassesEachGradientToItsTensorsFunction) {
  auto leaf = at::ones({2}).requires_grad_();
  auto inner = leaf * 2;
  auto send = compat::make_node<SendNode>(passage, torch::autograd::variable_list{leaf, inner});

  ASSERT_EQ(send->num_inputs(), 2u);
  ASSERT_EQ(send->num_outputs(), 2u);
  EXPECT_EQ(send->next_edge(0).function, torch::autograd::impl::grad_accumulator(leaf));
  EXPECT_EQ(send->next_edge(1).function, inner.grad_fn());
  auto gradient = at::ones({2});
  auto passed = (*send)({gradient, at::Tensor()});
  EXPECT_TRUE(passed[0].is_same(gradient));
  EXPECT_FALSE(passed[1].defined());
}

TEST(CrossingNodes, APlainBackwardThatReachesARecvNamesTheCallAndWhatToUse) {
  auto received = at::ones({2});
  auto recv = compat::make_node<RecvNode>(passage);
  set_history(recv, {received});
  EXPECT_TRUE(received.requires_grad());
  EXPECT_FALSE(received.is_leaf());

  try {
    torch::autograd::backward({(received * 2).sum()}, {});
    FAIL() << "backward went through a recv";
  } catch (const Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), AllOf(HasSubstr("\"forward\""), HasSubstr("rank 3"),
                                                      HasSubstr("context 42"), HasSubstr("Context::backward")));
  }
}

TEST(CrossingNodes, TheEndOfALongChainBehindASendDoesNotRecurse) {
  auto value = at::ones({1}).requires_grad_();
  for (int i = 0; i < 300'000; i++) value = value + 1;
  auto send = compat::make_node<SendNode>(passage, torch::autograd::variable_list{value});
  value.reset();
  send.reset();  // Overflows the stack if the nodes' ends nest.
}

}  // namespace
}  // namespace farad::autograd
