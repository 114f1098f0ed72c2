#include "autograd/gradient_store.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "autograd/gradient_sums.h"

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

TEST_F(GradientStoreTest, RefusesAGradientOfAnotherSizeAndKeepsWhatItHas) {
  leaves_.push_back(at::ones({2}).set_requires_grad(true));
  add_all();
  EXPECT_THROW(store_.add({leaves_[0], at::ones({3})}, false), Error);
  EXPECT_THROW(store_.add({leaves_[0], at::ones({1})}, false), Error) << "which libtorch would repeat";
  EXPECT_EQ(of(leaves_[0]), 1.0);
}

class GradientSumsTest : public testing::Test {
 protected:
  static at::Tensor make_leaf() { return at::ones({2}).set_requires_grad(true); }
  void hand_in(const at::Tensor& leaf, at::Tensor gradient) {
    sums_.hand_in({{leaf, std::move(gradient)}}, /*differentiable=*/false);
  }
  at::Tensor read(const at::Tensor& leaf) {
    std::pair<at::Tensor, Ready> found;
    EXPECT_TRUE(sums_.read(leaf, found).ok());
    return found.first;
  }

  GradientSums sums_;
};

TEST_F(GradientSumsTest, AreFormedWhenTheyAreReadInTheOrderOfPasses) {
  const auto leaf = make_leaf(), other = make_leaf();
  const auto large = at::full({2}, 1e8), small = at::full({2}, 1.0);
  hand_in(leaf, large.clone());
  hand_in(leaf, small.clone());
  hand_in(leaf, -large);
  EXPECT_TRUE(at::equal(read(leaf), large + small - large)) << "and not in another, which would give other bits";
  EXPECT_FALSE(read(other).defined());
  hand_in(leaf, small.clone());
  sums_.add_up();
  GradientStore all;
  ASSERT_TRUE(sums_.read(all).ok());
  EXPECT_TRUE(at::equal(all.find(leaf), large + small - large + small));
}

TEST_F(GradientSumsTest, ThatCannotBeFormedAreAnErrorForWhoeverReadsThemAndForNobodyElse) {
  const auto leaf = make_leaf(), other = make_leaf();
  hand_in(leaf, at::ones({2}));
  hand_in(other, at::ones({2}));
  hand_in(leaf, at::ones({3}));
  sums_.add_up();
  hand_in(leaf, at::ones({2}));
  hand_in(other, at::ones({2}));
  std::pair<at::Tensor, Ready> found;
  EXPECT_THAT(sums_.read(leaf, found).message(), testing::HasSubstr("[2] and of [3]"));
  EXPECT_TRUE(at::equal(read(other), at::full({2}, 2.0)));
  GradientStore all;
  EXPECT_FALSE(sums_.read(all).ok());
}

}  // namespace
}  // namespace farad::autograd
