#pragma once

#include <chrono>
#include <optional>

#include "acer/training.h"

namespace farad::acer {

/// Trains as a member of a group of processes, on this machine or on several: the first member keeps the parameters and
/// evaluates now and then, all others act and learn, one worker each, and call it for each update. Whatever order their
/// calls come in is the order of the updates.
///
/// Gives what it came to on the first member, nothing on the others. A worker that is lost may be started again by
/// whoever started it, as the same member: it takes up its work with an empty replay and other random numbers, and
/// until then the others go on without it. `board.stop`, of the first member, ends it early and in good order.
///
/// `patience`: how long to wait when all workers are lost for one to be started again, before it throws Error; and at
/// the end, for workers to hear that it is over, before they are named and left behind. Throws Error too if there is no
/// group, or nobody in it to work, or all have failed.
std::optional<Result> train_with_owner(Settings settings, Board& board, std::chrono::milliseconds patience);

}  // namespace farad::acer
