#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/fields.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/signature.h"
#include "wire/message.h"

namespace farad::collectives {

/// Which of a worker's groups: its members' ranks, and of those with these ranks the how-many-th.
struct GroupId {
  uint64_t number = 0;
  std::vector<uint16_t> ranks;
  auto operator<=>(const GroupId&) const = default;
  FARAD_FIELDS(number, ranks)
};

/// `group {0, 1}`, as messages say it.
std::string to_text(const GroupId& id);

/// Names a meeting of a group's members: the channel, the operation's number in it, which exchange of that operation;
/// then, if it is of a backward, which backward of that exchange; and so on, for backwards of backwards. What is made
/// of something has that one's path and one step more.
using Path = std::vector<uint64_t>;

/// What a member brings to a meeting, for one of the others.
struct Contribution {
  Signature signature;
  bool records = false;        ///< its grad mode
  bool requires_grad = false;  ///< of the tensor
  bool can_return = true;      ///< of a backward: its sender gets something there by which the next one reaches it
  int64_t context = 0;         ///< it was called in; 0 = none
  at::Tensor tensor;           ///< undefined if there is nothing for that one; beside the letter
  FARAD_FIELDS(signature, records, requires_grad, can_return, context)
};

/// What members tell each other.
struct Letter {
  enum class Kind : uint8_t {
    Contribution,
    Failed,  ///< the sender has given up on this meeting
    Ended,   ///< it takes no part in backwards of this exchange from the `since`-th on: count it as zero
    Waits,   ///< it waits for what the other has to say, and says so only to hear if that one is lost
    Skips,   ///< it takes no part in what all do from this operation on, until number `since`
  };
  Kind kind = Kind::Contribution;
  GroupId group;
  Path path;
  Contribution contribution;
  base::Code code = base::Code::Ok;  ///< Failed, Skips
  std::string why;
  uint64_t since = 0;  ///< Ended, Skips
  FARAD_FIELDS(kind, group, path, contribution, code, why, since)
};

/// A tensor for a letter. Whoever gave it may change it as soon as the operation is over, and the letter may still be
/// on its way then: so this one lies in the same memory but counts no versions, and a transport that has to keep it for
/// later copies it (wire/outgoing.h). What is written at once, as almost all is, is not copied for that.
at::Tensor passing(const at::Tensor& given);

wire::Message encode(const Letter& letter);
/// Protocol if this is none.
base::Status decode(wire::Message& message, Letter& letter);

}  // namespace farad::collectives
