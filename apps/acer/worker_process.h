#pragma once

#include "acer/board.h"
#include "acer/settings.h"
#include "acer/shared_parameters.h"

namespace farad::acer {

/// Whether workers write down which versions their updates were made of and made. Where an update is made of several,
/// or by somebody else, they do not know.
bool is_logged(const Settings& settings);

/// The life of a worker's process: it acts and learns until the training is done, or stopped, waits while a checkpoint
/// is made, and saves its part at the end. `life`: how many processes this worker had before.
void work(const Settings& settings, SharedModel& shared, Board& board, int worker, int life);

/// The life of the process that applies what workers compute, where the policy has one: until `board.over`.
void manage(SharedModel& shared, const Board& board);

}  // namespace farad::acer
