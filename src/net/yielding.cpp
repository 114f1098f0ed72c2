#include "net/yielding.h"

#include <algorithm>

namespace farad::net {

bool Yielding::willing(base::TimePoint now) {
  if (now < paused_until_) return false;
  if (in_vain_ < patience) return true;
  if (++in_vain_ > patience + waits_without) in_vain_ = 0;
  return false;
}

bool Yielding::note(base::TimePoint from, base::TimePoint to, bool came) {
  if (to - from < (came ? long_yield : long_in_vain)) return true;
  paused_until_ = to + next_pause_;
  next_pause_ = std::min<base::Duration>(next_pause_ * 2, longest_pause);
  went_well_ = 0;
  return false;
}

void Yielding::note_wait(bool came) {
  if (!came) {
    ++in_vain_;
    return;
  }
  in_vain_ = 0;
  if (++went_well_ < waits_to_forgive) return;
  went_well_ = 0;
  next_pause_ = first_pause;
}

}  // namespace farad::net
