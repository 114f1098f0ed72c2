#pragma once

#include <ATen/ATen.h>
#include <farad/optim.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "suites/rpc_suite.h"

namespace farad::test {

/// A small model twice: its weights on several workers, and all of them here. Equal numbers go in; equal ones must come
/// out of whatever is done to both.
///
/// Of each owner there are two weights; `y = tanh(x a) b` is what one owner does with its input, and the output of one
/// is the input of the next.
class Twins {
 public:
  /// A pair of weights at each of `owners`, which are ranks of `group`.
  Twins(Group& group, std::vector<int> owners);

  const std::vector<RRef<at::Tensor>>& far() const { return far_; }
  const std::vector<at::Tensor>& near() const { return near_; }

  /// The loss of the far ones, for one input.
  at::Tensor far_loss(const at::Tensor& input) const;
  at::Tensor near_loss(const at::Tensor& input) const;
  /// What the far ones are now.
  std::vector<at::Tensor> far_values() const;
  void expect_equal() const;

  static at::Tensor input(int number);

 private:
  Worker& worker_;
  std::vector<RRef<at::Tensor>> far_;
  std::vector<at::Tensor> near_;
};

}  // namespace farad::test
