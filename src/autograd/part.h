#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/engine/deferred_node.h"
#include "autograd/engine/evaluator.h"
#include "autograd/engine/plan.h"
#include "autograd/pass/message.h"
#include "autograd/pass_options.h"
#include "base/clock.h"
#include "net/driver.h"

namespace farad::autograd {

/// What a pass was called with, at its root.
struct Roots {
  std::vector<torch::autograd::Edge> edges;
  std::vector<at::Tensor> gradients;            ///< of each
  bool all_leaves = true;                       ///< otherwise, of leaves, only `leaves` keep their gradients
  std::vector<torch::autograd::Edge> leaves;    ///< `inputs` of backward()
  std::vector<torch::autograd::Edge> captures;  ///< inputs of grad()
};

/// How long a pass may last.
struct Limit {
  base::TimePoint deadline = base::never;
  std::chrono::milliseconds timeout{0};  ///< what was asked for
  PassId pass = {};                      ///< which fails then: this one, or one that it is within
};

/// What lies beside a message of a pass. Each tensor is taken out, once, so that nobody but its new holder has it: a
/// gradient that nobody else holds need not be copied to be kept.
struct Cargo {
  mutable std::vector<at::Tensor> tensors;
};

/// One worker's part in one pass: what runs, and what has come for it. See LocalContext for whose lock guards what.
struct Part : std::enable_shared_from_this<Part> {
  /// An answer to a send, or what one of this worker's own recvs hands over to its send.
  struct Arrival {
    NodeIndex send = no_node;
    std::vector<at::Tensor> gradients;  ///< undefined where there is none
  };

  /// A node whose outputs come later.
  struct Deferred {
    compat::Ptr<DeferredNode> node;
    uint64_t which = 0;
    std::atomic<bool> begun{false};  ///< or never will be
    std::atomic<bool> over{false};   ///< what came of it is known
  };
  /// And what came of one.
  struct Completion {
    NodeIndex node = no_node;
    DeferredNode::Result result;
    bool live = true;  ///< once it is known: whether anything came
  };

  PassId id;
  PassOptions options;
  base::Status options_status;  ///< whether they could be read
  std::optional<Roots> roots;   ///< at the root, whose thread waits and runs the part itself
  Limit limit;                  ///< likewise: for that thread

  // Set by who scans, before the pass hears of it; from then on used by whoever runs the part.
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Evaluator> evaluator;
  /// Of the context, when the pass began here. Constant from then on.
  std::list<Deferred> deferred;  // Unlike a deque, an empty one has no memory.
  std::unordered_map<const torch::autograd::Node*, Deferred*> deferred_by_node;

  // Guarded by the context's lock:
  std::vector<Arrival> arrivals;                         // that the evaluator has not been fed yet
  std::vector<Completion> completions;                   // likewise
  std::map<NodeIndex, std::vector<at::Tensor>> answers;  // of recvs that were run and not sent yet
  bool running = false;                                  // a thread runs it, or is about to
  bool held = false;                                     // at the root: complete, see Passes::begin_within()
  bool ended = false;
  bool committed = false;
  PassFailure failure;                  // if not
  std::shared_ptr<net::Waiter> waiter;  // of the thread that called backward, while it waits

  bool is_root() const { return roots.has_value(); }
};

}  // namespace farad::autograd
