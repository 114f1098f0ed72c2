#pragma once

#include "acer/board.h"
#include "acer/settings.h"
#include "acer/shared_parameters.h"

namespace farad::acer {

/// Whether workers write down which versions their updates were made of and made. Where an update is made of several,
/// or by somebody else, they do not know.
bool is_logged(const Settings& settings);

/// Whether workers wait for each other to change the model together.
bool workers_meet(const Settings& settings);
/// Where they do: how many versions there are from one checkpoint to the next, about what the settings' steps make; 0
/// if there are none before the end.
uint64_t versions_between_checkpoints(const Settings& settings);

/// The life of a worker's process: it acts and learns until the training is done, or stopped, waits while a checkpoint
/// is made, and saves its part at the end. `life`: how many processes this worker had before.
void work(const Settings& settings, SharedModel& shared, Board& board, int worker, int life);

/// The life of the process that applies what workers compute, where the policy has one: until `board.over`.
void manage(SharedModel& shared, const Board& board);

}  // namespace farad::acer
