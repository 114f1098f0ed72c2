#pragma once

#include "autograd/ids.h"

namespace farad::autograd {

/// A function of checkpoint() that is run again: the rank of the worker that does (16 bits), and that one's counter;
/// 0 for all that is run for the first time. What is sent and received in it belongs to its own pass, and to no other
/// of the context.
using RerunId = base::Id<struct RerunTag, uint64_t>;

/// What this thread runs is part of it.
RerunId current_rerun();

class RerunScope {
 public:
  explicit RerunScope(RerunId rerun);
  ~RerunScope();
  RerunScope(const RerunScope&) = delete;

 private:
  const RerunId before_;
};

}  // namespace farad::autograd
