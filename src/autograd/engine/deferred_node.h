#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <string>

#include "autograd/ids.h"
#include "base/status.h"

namespace farad::autograd {

/// A node whose outputs come later, from outside: a pass goes on with others meanwhile, so that it does not matter in
/// which order workers come to theirs.
///
/// One that was recorded in a context takes part in every pass of it, whether a root leads to it or not: others may
/// wait for what it has to say. Then its inputs are undefined.
class DeferredNode : public torch::autograd::Node {
 public:
  using Node::Node;
  /// Computes the outputs; may throw.
  using Result = std::function<torch::autograd::variable_list()>;

  /// A pass begins: which time that is, to be told to begin() or give_up(). Any thread; short.
  virtual uint64_t enter(PassId pass) = 0;
  /// Instead of calling it. `done` is called once, by any thread, also before this returns.
  virtual void begin(uint64_t which, torch::autograd::variable_list gradients, std::function<void(Result)> done) = 0;
  /// The pass has failed. `begun`: it came here, and may or may not have heard of the result. Any thread.
  virtual void give_up(uint64_t which, bool begun, const base::Status& why) = 0;
  /// For messages, while it has begun and is not done: what that is, and whom it waits for. Any thread.
  virtual std::string waits_for(uint64_t which) const = 0;
  /// The context that it was recorded in has ended: no pass will come. Any thread.
  virtual void end() = 0;
  /// One of its inputs, which belongs to no tensor: where passes come in.
  virtual uint32_t pulse() const = 0;
};

}  // namespace farad::autograd
