#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/pass/message.h"
#include "autograd/topology.h"

namespace farad::autograd {

/// What Passes wants done, by whoever called it and before that one calls it again for the same pass. In this order.
struct Effects {
  /// Take a snapshot of the context for a pass that begins, then call scanned(), at once or later and from anywhere.
  /// The snapshot is of now: what is recorded from here on is told by late_recv(), and is not in it.
  struct Scan {
    PassId pass;
    bool fast = false;
    std::string options;
  };
  /// An answer has come: `states`, and for each of them that is Tensor the next one of the cargo from `first_tensor`,
  /// are the inputs of this send.
  struct Delivery {
    PassId pass;
    NodeIndex send = no_node;
    uint32_t first_state = 0, tensors = 0;
    uint32_t first_tensor = 0;
    std::shared_ptr<const void> cargo;
  };
  /// A worker called itself: the inputs of its recv are now those of its send.
  struct HandOver {
    PassId pass;
    NodeIndex recv = no_node, send = no_node;
  };
  /// Of a Grads message: for each answer's state that says Tensor the gradient is an input of the answer's node; it
  /// goes beside the message, or the state becomes Undefined. Send it, or say on_lost(to).
  struct Outgoing {
    base::Rank to;
    PassMessage message;
  };
  /// The pass is over here: its gradients count from now on, or they never will. At its root, this is its result.
  struct Ending {
    PassId pass;
    bool committed = false;
    PassFailure failure;  ///< why not
  };

  std::vector<Scan> scans;
  std::vector<Delivery> deliveries;
  std::vector<TensorState> states;  ///< of all deliveries
  std::vector<HandOver> hand_overs;
  std::vector<Outgoing> messages;
  std::vector<Ending> endings;
  std::vector<PassId> held;       ///< begun here within another pass: complete, and will end as that one does
  std::vector<PassId> runnable;   ///< next_ready() has something for these; not said by ran(), whose caller asks anyway
  std::vector<uint64_t> readers;  ///< gradients may be read: see Passes::read()

  std::span<const TensorState> states_of(const Delivery& delivery) const {
    return std::span(states).subspan(delivery.first_state, delivery.tensors);
  }
};

}  // namespace farad::autograd
