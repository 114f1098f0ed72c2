#pragma once

#include <optional>

#include "acer/training.h"

namespace farad::acer {

/// Trains as a member of a group of processes, on this machine or on several: the first member keeps the parameters and
/// evaluates now and then, all others act and learn, one worker each, and call it for each update. Whatever order their
/// calls come in is the order of the updates.
///
/// Gives what it came to on the first member, nothing on the others. A worker that is lost is not replaced: the others
/// go on without it. `board.stop`, of the first member, ends it early and in good order. A worker that does not hear
/// within half a minute that it is over is named and left behind. Throws Error if there is no group, or nobody in it to
/// work, or nobody left.
std::optional<Result> train_with_owner(Settings settings, const Board& board);

}  // namespace farad::acer
