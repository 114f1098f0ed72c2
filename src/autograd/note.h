#pragma once

#include <span>

#include "autograd/rerun.h"
#include "base/status.h"
#include "wire/message.h"

namespace farad::autograd {

/// What goes with a call or its result: see rpc/interceptor.h.
struct Note {
  ContextId context;     ///< 0 = none
  bool no_grad = false;  ///< the caller's grad mode, which the function runs in
  PairId pair;           ///< 0 = no tensor of this message is in need of a gradient
  uint32_t tensors = 0;  ///< how many are: those that say so themselves
  uint64_t path = 0;     ///< of a call; see current.h
  RerunId rerun;         ///< that it is part of
};

void encode(const Note& note, wire::Bytes& bytes);
/// Protocol if this is no note.
base::Status decode(std::span<const char> bytes, Note& note);

}  // namespace farad::autograd
