#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/kinds.h"
#include "shared/layout.h"
#include "shared/segment.h"

namespace farad::shared {

/// libtorch's optimizer over the values of a segment, and over what it remembers of them, which lies there too: all
/// processes have one set of moments and one count of steps. And the buffers, which no optimizer steps. One thread at a
/// time.
class Stepper {
 public:
  Stepper(const std::shared_ptr<Segment>& segment, const Layout& layout, const detail::OptimizerSettings& settings);

  /// By the gradients of the trained parameters, in their order; undefined ones change nothing. Whether anybody else
  /// may step meanwhile is for the caller to know. Throws what libtorch throws, before anything has changed or in the
  /// middle. The moving average follows.
  void step(const std::vector<at::Tensor>& gradients, double rate);

  /// The buffers become these; none if it is given none, and an undefined one stays.
  void put(const std::vector<at::Tensor>& buffers) const;

  /// Throws, naming the parameter or the buffer, unless it could be stepped by these and be given those.
  void check(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& buffers) const;
  /// Those that the values have themselves become undefined: there is nothing to put.
  void drop_own(std::vector<at::Tensor>& buffers) const;

 private:
  struct Memory {
    std::string name;
    std::atomic<int64_t>* steps;                   // plus one
    std::map<std::string, at::Tensor> remembered;  // in the segment
    at::Tensor average;                            // there too, if one is kept
    std::optional<optim::ParameterState> first;    // before the first step; most optimizers remember nothing then
    bool given = false;                            // whether the optimizer has what is remembered for its own
  };

  /// All parameters as one tensor, which an optimizer takes a fraction of the calls for. What it computes is the same
  /// to the bit, because optimizers look at each element by itself.
  struct Whole {
    std::vector<char*> gradients;  // where each one's goes, in that of `values`
    at::Tensor values, average;    // in the segment
    std::map<std::string, at::Tensor> remembered;
    std::unique_ptr<optim::TorchOptimizer> optimizer;
    bool given = false;
  };

  static std::optional<Whole> whole_of(const std::shared_ptr<Segment>& segment, const Layout& layout,
                                       const detail::OptimizerSettings& settings);
  /// Notes one more step of a parameter; gives how often it was stepped before, plus one, or 0 if it never was.
  static int64_t count(const Memory& memory);
  void step_plainly(const std::vector<at::Tensor>& gradients, double rate);
  void step_by_optimizer(const std::vector<at::Tensor>& gradients, double rate);
  void step_each(const std::vector<at::Tensor>& gradients, const std::vector<int64_t>& steps, double rate);
  void step_whole(const std::vector<at::Tensor>& gradients, int64_t steps, double rate);

  struct Buffer {
    std::string name;
    at::Tensor values;  // in the segment
  };

  std::vector<at::Tensor> trained_;
  std::vector<Memory> memories_;
  std::vector<Buffer> buffers_;
  const double moving_average_;
  const bool plain_;  // SGD that remembers nothing
  std::unique_ptr<optim::TorchOptimizer> optimizer_;
  std::optional<Whole> whole_;  // of a small model
};

}  // namespace farad::shared
