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

/// Whether a worker, at that version, has done its part.
///
/// In step with the others, the end must not depend on how fast they are: a seed decides all of it, and what goes on
/// from there goes on as if there had been no end. So all end at one version.
bool is_done(const Settings& settings, Board& board, Tally& tally, uint64_t version);

/// The life of a worker's process: it acts and learns until the training is done, or stopped, waits while a checkpoint
/// is made, and saves its part at the end. `goes_on`: it begins with its part of the last checkpoint.
void work(const Settings& settings, SharedModel& shared, Board& board, int worker, bool goes_on);

/// The life of the process that applies what workers compute, where the policy has one: until `board.over`.
void manage(SharedModel& shared, const Board& board);

}  // namespace farad::acer
