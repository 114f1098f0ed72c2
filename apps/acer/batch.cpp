#include "acer/batch.h"

#include <c10/util/Exception.h>

namespace farad::acer {

void Batch::clear() {
  observations_.clear();
  afters_.clear();
  taken_.clear();
  rewards_.clear();
  behaviour_.clear();
  windows_.clear();
  begin_ = 0;
}

void Batch::add_step(std::span<const float> observation, int64_t action, double reward,
                     std::span<const float> behaviour) {
  observations_.insert(observations_.end(), observation.begin(), observation.end());
  taken_.push_back(action);
  rewards_.push_back(reward);
  behaviour_.insert(behaviour_.end(), behaviour.begin(), behaviour.end());
}

void Batch::end_window(Ending ending, std::span<const float> after) {
  TORCH_CHECK(steps() > begin_, "[acer] a window without steps");
  windows_.push_back({begin_, steps() - begin_, ending});
  afters_.insert(afters_.end(), after.begin(), after.end());
  begin_ = steps();
}

std::span<const double> Batch::behaviour(int64_t row) const {
  return {behaviour_.data() + row * actions_, static_cast<size_t>(actions_)};
}

}  // namespace farad::acer
