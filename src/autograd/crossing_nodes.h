#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>

#include "autograd/call_name.h"
#include "autograd/ids.h"
#include "autograd/rerun.h"
#include "autograd/torch_compat.h"

namespace farad::autograd {

/// What a node of either kind knows of the message that it stands for.
struct Passage {
  ContextId context;  ///< only its id: a context ends with its owner, however long a graph lives
  PairId pair;
  base::Rank peer;    ///< who is at the other end
  CallName call;      ///< for messages
  uint64_t path = 0;  ///< how it came to be; see current.h
  RerunId rerun = {};
  bool gradient = false;  ///< a pass sent it, and so nobody called for it
};

inline bool needs_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

/// Stands for the tensors of one message to a peer. Its next edges lead to what made them, in the order of the message;
/// its inputs, one per tensor, are their gradients as the peer answers them, and it passes these on as they are.
///
/// Nothing leads to it: its context holds it, until that ends.
class SendNode final : public torch::autograd::Node {
 public:
  /// `tensors`: of the message; it stands for those that require a gradient.
  SendNode(Passage passage, const torch::autograd::variable_list& tensors);

  const Passage& passage() const { return passage_; }
  std::string name() const override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  const Passage passage_;
};

/// The history of the tensors of one message from a peer: where their gradients leave this worker.
///
/// Only Context::backward knows how to send them: to be called, by a plain backward() for example, is an error.
class RecvNode final : public torch::autograd::Node {
 public:
  explicit RecvNode(Passage passage);

  const Passage& passage() const { return passage_; }
  std::string name() const override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  const Passage passage_;
};

/// Makes `node` the history of `tensor`, which has none: the tensor's gradient is its next input.
void add_history(const compat::Ptr<RecvNode>& node, const at::Tensor& tensor);
/// The same for all of them, in their order.
void set_history(const compat::Ptr<RecvNode>& node, const torch::autograd::variable_list& tensors);

}  // namespace farad::autograd
