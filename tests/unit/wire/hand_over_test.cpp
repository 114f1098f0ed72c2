#include "wire/hand_over.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "wire/message.h"

#if __has_include(<ATen/ops/_lazy_clone.h>)
#include <ATen/ops/_lazy_clone.h>
#endif

namespace farad::wire {
namespace {

enum class Rule { Off, On };

/// What a transport over shared memory does with the only tensor of a message: the receiver gets a tensor over the
/// sender's memory with a version counter of its own, as in another process.
at::Tensor receive(Message message, Rule rule) {
  auto& sent = message.tensors.at(0);
  const auto shared = rule == Rule::Off || may_hand_over(sent) ? sent : snapshot(sent);
  return at::from_blob(shared.data_ptr(), shared.sizes(), [keep = shared](void*) {}, shared.options());
}

Message sending(at::Tensor tensor) {
  Message message;
  message.tensors.push_back(std::move(tensor));
  return message;
}

/// d(h * h)/dx at h = x = 3 is 6, whatever the receiver of h does with what it received.
float gradient_when_the_receiver_writes(Rule rule) {
  const auto x = at::full({}, 3.0f).set_requires_grad(true);
  auto h = x.mul(1);
  const auto loss = h.mul(h);  // Saves h for its backward.
  const auto received = receive(sending(std::move(h)), rule);
  received.fill_(100);
  loss.backward();
  return x.grad().item<float>();
}

/// d(r * r)/dr at r = 3 is 6, whatever the sender of r does with its tensor afterwards.
float gradient_when_the_sender_writes(Rule rule) {
  const auto h = at::full({}, 3.0f);
  const auto received = receive(sending(h), rule).set_requires_grad(true);
  const auto loss = received.mul(received);  // Saves what was received.
  h.fill_(100);
  loss.backward();
  return received.grad().item<float>();
}

TEST(HandOver, WithoutTheRuleAReceiverThatWritesFalsifiesTheSendersGradient) {
  EXPECT_EQ(gradient_when_the_receiver_writes(Rule::Off), 200);
}
TEST(HandOver, AReceiverMayWriteWithoutTouchingTheSendersGradient) {
  EXPECT_EQ(gradient_when_the_receiver_writes(Rule::On), 6);
}
TEST(HandOver, WithoutTheRuleASenderThatWritesFalsifiesTheReceiversGradient) {
  EXPECT_EQ(gradient_when_the_sender_writes(Rule::Off), 200);
}
TEST(HandOver, ASenderMayWriteWithoutTouchingTheReceiversGradient) {
  EXPECT_EQ(gradient_when_the_sender_writes(Rule::On), 6);
}

TEST(HandOver, ATensorNobodyElseHoldsGoesAsItIs) {
  auto message = sending(at::rand({4}));
  const void* memory = message.tensors[0].data_ptr();
  ASSERT_TRUE(may_hand_over(message.tensors[0]));
  EXPECT_EQ(receive(std::move(message), Rule::On).data_ptr(), memory);
}

TEST(HandOver, AnyOtherReferenceForbidsIt) {
  const auto kept = at::rand({4});
  EXPECT_FALSE(may_hand_over(sending(kept).tensors[0]));
  EXPECT_FALSE(may_hand_over(sending(kept.slice(0, 0, 2)).tensors[0])) << "a view";
  EXPECT_FALSE(may_hand_over(sending(kept.detach()).tensors[0])) << "an alias";
  const auto x = at::rand({4}).set_requires_grad(true);
  auto y = x.exp();
  const auto z = y.sum();
  EXPECT_FALSE(may_hand_over(sending(std::move(y)).tensors[0])) << "exp saves its result";
  EXPECT_FALSE(may_hand_over(at::Tensor()));
}

#if __has_include(<ATen/ops/_lazy_clone.h>)
TEST(HandOver, ALazyCloneForbidsIt) {
  const auto kept = at::rand({4});
  EXPECT_FALSE(may_hand_over(sending(at::_lazy_clone(kept)).tensors[0]));
}
#endif

TEST(HandOver, ASnapshotKeepsValuesAndRequiresGradButNoHistory) {
  const auto x = at::rand({4, 3}).set_requires_grad(true);
  const auto y = x.mul(2).t();
  const auto copy = snapshot(y);
  EXPECT_TRUE(copy.equal(y));
  EXPECT_TRUE(copy.is_leaf());
  EXPECT_TRUE(copy.requires_grad());
  EXPECT_TRUE(may_hand_over(copy));
  EXPECT_FALSE(snapshot(at::Tensor()).defined());
}

}  // namespace
}  // namespace farad::wire
