#pragma once

#include <ATen/core/TensorBody.h>

#include <map>
#include <memory>
#include <vector>

#include "collectives/session.h"

namespace farad::collectives {

/// Every operation is made of this one, and of functions of libtorch: each member gives each other one a tensor or
/// nothing. It only moves tensors, so its adjoint is the exchange that takes the gradients back the same ways; and that
/// one is differentiable for the same reason.
struct Exchange {
  Path path;
  Signature signature;
  std::vector<at::Tensor> gives;        ///< by member, this one too; undefined where there is nothing
  std::vector<int> to = {};             ///< other members that get a letter: all who are waited for there; in order
  std::vector<int> from = {};           ///< other members that are waited for; in order
  bool keeps_own = true;                ///< what a member gives itself is copied; otherwise it may share memory
  bool wants_token = false;             ///< see Received
  bool in_one_context = false;          ///< all members are in the same one
  std::vector<at::Tensor> beside = {};  ///< lead on from here like what is given; but nobody gets them
  bool can_return = true;               ///< see Contribution
};

struct Received {
  std::vector<at::Tensor> tensors;  ///< by member; undefined where there was nothing
  at::Tensor token;                 ///< empty, and leads backward to the exchange like the others
};

/// Waits for the others. Throws Timeout, PeerLost, Error.
///
/// If anything that this member gave or got requires a gradient, and it records, then every tensor of floating point in
/// what it got leads to the exchange, so that whatever a loss uses of it, backward gets there.
///
/// A backward that is recorded is an exchange like that, and hands every tensor that leads on from here a gradient that
/// leads to it: zero where nothing came back, and for those beside always. So members that get no gradients of others,
/// as where a broadcast was received, have something by which their next backward gets there too.
Received exchange(const std::shared_ptr<Session>& session, Exchange what);

/// The same without meeting anybody, where what it is about has gone other ways: `came` is what the others have said,
/// with tensors of which only the kind matters. What is received leads to the exchange; its numbers are nobody's.
Received as_if_exchanged(const std::shared_ptr<Session>& session, Exchange what, std::map<int, Contribution> came);

}  // namespace farad::collectives
