#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>

namespace farad::autograd {

class Backward;
class LocalContext;
struct Part;

/// The pass that a thread runs a node of, for nodes that have to know.
struct RunningPass {
  Backward& backward;
  const std::shared_ptr<LocalContext>& context;
  Part& part;
  const torch::autograd::Node* node = nullptr;
};

/// Of this thread, if `node` is what it runs: null when libtorch's own engine does.
RunningPass* running_pass(const torch::autograd::Node* node);

/// For its life, this thread runs nodes of `pass`.
class RunningPassScope {
 public:
  explicit RunningPassScope(RunningPass& pass);
  ~RunningPassScope();
  RunningPassScope(const RunningPassScope&) = delete;

 private:
  RunningPass* const before_;
};

}  // namespace farad::autograd
