#include "autograd/gradient_store.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <vector>

namespace farad::autograd {
namespace {

class GradientStoreTest : public testing::Test {
 protected:
  /// The i-th leaf's gradient is i + 1 each time.
  void add_all() {
    for (size_t i = 0; i < leaves_.size(); i++) {
      store_.add({leaves_[i], at::full({2}, static_cast<double>(i + 1))}, false);
    }
  }
  double of(const at::Tensor& leaf) { return store_.find(leaf)[0].item<double>(); }

  GradientStore store_;
  std::vector<at::Tensor> leaves_;
};

// Few are looked for one by one, more by a table, and there is a change in between.
TEST_F(GradientStoreTest, SumsUpByLeafHoweverManyThereAre) {
  for (const size_t count : {1, 8, 9, 40}) {
    store_ = {};
    leaves_.clear();
    for (size_t i = 0; i < count; i++) leaves_.push_back(at::ones({2}).set_requires_grad(true));
    add_all();
    add_all();
    ASSERT_EQ(store_.entries().size(), count);
    for (size_t i = 0; i < count; i++) {
      EXPECT_EQ(of(leaves_[i]), 2.0 * static_cast<double>(i + 1));
      EXPECT_TRUE(store_.entries()[i].first.is_same(leaves_[i])) << "in the order in which they were first seen";
    }
    EXPECT_FALSE(store_.find(at::ones({2})).defined());
    EXPECT_FALSE(store_.look(at::ones({2})).first.defined());
    store_.set(leaves_.back(), at::full({2}, -1.0));
    EXPECT_EQ(of(leaves_.back()), -1.0);
    EXPECT_TRUE(store_.look(leaves_.back()).first.is_same(store_.find(leaves_.back())));
  }
}

}  // namespace
}  // namespace farad::autograd
