#pragma once

#include <cstdint>
#include <vector>

#include "autograd/pass/pass.h"

namespace farad::autograd {

/// How far one worker's part in a pass has come, and what it waits for: what one wants to know of a pass that takes
/// long.
struct Progress {
  PassId pass;
  PassState state = PassState::Early;
  uint32_t nodes = 0;    ///< that the pass has to do with here; 0 until they are counted
  uint32_t fired = 0;    ///< of them: they were run, or are known not to be reached
  uint32_t running = 0;  ///< of them: somebody runs them now
  std::vector<base::Rank>
      waits_for;  ///< in order: whom nodes wait for; once all have fired, whom the verdict waits for
};

/// Of a pass that has not ended, at worker `self`.
Progress progress_of(const Pass& pass, base::Rank self);

}  // namespace farad::autograd
