#include "autograd/engine/accumulate.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <utility>

namespace farad::autograd {
namespace {

class OwnGradientTest : public testing::Test {
 protected:
  const at::Tensor leaf_ = at::ones({4}).set_requires_grad(true);
  const c10::AutoGradMode no_grad_{false};
};

TEST_F(OwnGradientTest, WhatNobodyElseHoldsIsNotCopied) {
  at::Tensor gradient = at::ones({4});
  const void* const memory = gradient.data_ptr();
  EXPECT_EQ(own_gradient(leaf_, std::move(gradient), false).data_ptr(), memory);
}

TEST_F(OwnGradientTest, AViewOfWhatNobodyElseHoldsIsNotCopied) {
  at::Tensor gradient = at::ones({2, 2}).view({4});
  ASSERT_TRUE(gradient.is_view());
  const void* const memory = gradient.data_ptr();
  EXPECT_EQ(own_gradient(leaf_, std::move(gradient), false).data_ptr(), memory);
}

TEST_F(OwnGradientTest, AViewOfWhatOthersSeeIsCopied) {
  const at::Tensor base = at::ones({2, 2});
  EXPECT_NE(own_gradient(leaf_, base.view({4}), false).data_ptr(), base.data_ptr());
}

TEST_F(OwnGradientTest, OneOfTwoViewsIsCopied) {
  at::Tensor one = at::ones({2, 2}).view({4});
  const at::Tensor other = one.view({4, 1});
  EXPECT_NE(own_gradient(leaf_, std::move(one), false).data_ptr(), other.data_ptr());
}

}  // namespace
}  // namespace farad::autograd
