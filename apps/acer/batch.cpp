#include "acer/batch.h"

#include <c10/util/Exception.h>

namespace farad::acer {

void Batch::clear() {
  observations_.clear();
  afters_.clear();
  taken_.clear();
  taken_amounts_.clear();
  noise_.clear();
  rewards_.clear();
  behaviour_.clear();
  windows_.clear();
  begin_ = 0;
}

void Batch::add_step(std::span<const float> observation, const Action& action, double reward,
                     std::span<const float> behaviour) {
  observations_.insert(observations_.end(), observation.begin(), observation.end());
  taken_.push_back(action.choice);
  taken_amounts_.insert(taken_amounts_.end(), action.amounts.begin(), action.amounts.end());
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
  const int64_t width = amounts_ > 0 ? amounts_ : actions_;
  return {behaviour_.data() + row * width, static_cast<size_t>(width)};
}

std::span<const double> Batch::taken_amounts(int64_t row) const {
  return {taken_amounts_.data() + row * amounts_, static_cast<size_t>(amounts_)};
}

void Batch::draw_noise(int64_t count, Random& random) {
  noise_.resize(static_cast<size_t>(steps() * count * amounts_));
  for (double& x : noise_) x = random.normal();
}

std::span<const double> Batch::noise(int64_t row) const {
  const auto width = noise_.size() / static_cast<size_t>(steps());
  return {noise_.data() + static_cast<size_t>(row) * width, width};
}

}  // namespace farad::acer
