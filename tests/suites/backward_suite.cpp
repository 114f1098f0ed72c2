#include "suites/backward_suite.h"

namespace farad::test {

Tensor leaf(double first) { return at::arange(9, at::kDouble).reshape({3, 3}).mul(0.1).add(first).requires_grad_(); }

Tensor multiply(Tensor a, Tensor b) { return a * b; }

void expect_equal(const Tensor& gradient, const Tensor& expected) {
  ASSERT_EQ(gradient.defined(), expected.defined());
  if (!expected.defined()) return;
  EXPECT_TRUE(at::equal(gradient, expected)) << gradient << "\nnot\n" << expected;
}

void expect_close(const Tensor& gradient, const Tensor& expected) {
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(at::allclose(gradient, expected, 1e-10, 1e-12)) << gradient << "\nnot\n" << expected;
}

void expect_gradient(const Context& context, const Tensor& leaf, const Tensor& expected) {
  expect_equal(context.gradient(leaf), expected);
}

Tensor gradient_at(Worker& worker, const Context& context, const Tensor& leaf) {
  return gradients(worker, context.id()).find(leaf);
}

Tensor gradient_everywhere(Group& group, const Context& context, const Tensor& leaf) {
  Tensor sum = at::zeros_like(leaf);
  for (int rank = 0; rank < group.size(); ++rank) {
    const Tensor part = gradient_at(group[rank], context, leaf);
    if (part.defined()) sum = sum + part;
  }
  return sum.detach();
}

size_t recorded(const Worker& worker) {
  size_t messages = 0;
  for (const auto& context : worker.debug().contexts) messages += context.sends + context.recvs;
  return messages;
}

bool no_context_is_left(Group& group) {
  return eventually([&] {
    for (int rank = 0; rank < group.size(); ++rank) {
      if (!group[rank].debug().contexts.empty()) return false;
    }
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(Each, BackwardSuite, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace farad::test
