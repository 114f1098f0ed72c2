#pragma once

#include <string>
#include <vector>

#include "acer/settings.h"
#include "acer/shared_parameters.h"

namespace farad::acer {

/// Which updates were made in a training, of what, by whom and in which order: all that its seed does not decide.
struct Schedule {
  struct Life {
    int worker = 0, life = 0;
    std::vector<Scheduled> updates;
  };
  std::vector<Life> lives;

  uint64_t updates() const;
};

/// Where a worker's process logs its updates.
std::string log_of(const std::string& out, int worker, int life);
/// Of trainings that were there before.
void clear_logs(const std::string& out);

/// From the logs of a training. Throws Error if updates are missing.
Schedule read_schedule(const std::string& out);

/// Makes the updates of a schedule again, in this process and in the same order, each by a gradient that is computed
/// from the same versions by the same worker with the same random numbers. `model` is new, with the settings' first
/// values; in the end it is what the training's model was, to the bit if that was Locked.
void replay_schedule(const Settings& settings, const Schedule& schedule, SharedModel& shared);

/// Whether two models that were saved are the same to the bit: values, averages, what the optimizer remembers, how many
/// steps it has made, and the version.
bool same_to_the_bit(const std::string& one, const std::string& other);

/// The largest difference of any two values, of the averages too; infinite if the versions differ, and no number if one
/// of the values is none.
double difference(const shared::Model::Snapshot& one, const shared::Model::Snapshot& other);

}  // namespace farad::acer
