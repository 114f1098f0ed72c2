#pragma once

#include <torch/nn/module.h>

#include <string>

#include "acer/evaluation.h"

namespace farad::acer {

/// Keeps the policy with the best evaluation so far, beside the results: best.pt, as libtorch saves modules. Whoever
/// evaluates writes each policy before it tells its evaluation; whoever hears of that decides.
class BestPolicy {
 public:
  /// With `resume` those of before, by evaluations.csv, count too.
  BestPolicy(const std::string& out, bool resume);

  /// Of the policy that was written last.
  void heard(const Evaluation& evaluation);

  static void write(torch::nn::Module& policy, const std::string& out);
  static std::string path(const std::string& out) { return out + "/best.pt"; }

 private:
  const std::string out_;
  double best_;
};

}  // namespace farad::acer
