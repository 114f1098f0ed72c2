#include "acer/replay.h"

#include <algorithm>

#include "acer/stream.h"

namespace farad::acer {

Replay::Replay(int64_t capacity, int64_t observation_size, int64_t actions, int64_t amounts, bool misses_ends)
    : capacity_(capacity),
      observation_size_(observation_size),
      amounts_(amounts),
      behaviour_size_(amounts > 0 ? amounts : actions),
      misses_ends_(misses_ends),
      observations_(static_cast<size_t>(capacity * observation_size)),
      afters_(observations_.size()),
      behaviours_(static_cast<size_t>(capacity * behaviour_size_)),
      taken_(static_cast<size_t>(capacity)),
      taken_amounts_(static_cast<size_t>(capacity * amounts)),
      rewards_(static_cast<size_t>(capacity)),
      overs_(static_cast<size_t>(capacity)) {}

template <class Value>
void Replay::put(std::span<const Value> values, std::vector<Value>& rows, int64_t width) const {
  std::copy(values.begin(), values.end(), rows.begin() + static_cast<int64_t>(slot(added_)) * width);
}

void Replay::add(std::span<const float> observation, const Action& action, std::span<const float> behaviour,
                 const Outcome& outcome, std::span<const float> after) {
  put(observation, observations_, observation_size_);
  put(after, afters_, observation_size_);
  put(behaviour, behaviours_, behaviour_size_);
  put(action.amounts, taken_amounts_, amounts_);
  taken_[slot(added_)] = action.choice;
  rewards_[slot(added_)] = outcome.reward;
  overs_[slot(added_)] = outcome.terminated ? Over::Terminated : outcome.truncated ? Over::Truncated : Over::No;
  ++added_;
  size_ = std::min(size_ + 1, capacity_);
}

void Replay::cut_off() {
  if (size_ > 0 && overs_[slot(added_ - 1)] == Over::No) overs_[slot(added_ - 1)] = Over::Truncated;
}

int64_t Replay::draw(int64_t length, Random& random, Batch& batch) const {
  int64_t begin = added_ - size_ + random.below(size_);
  if (misses_ends_ && overs_[slot(begin)] != Over::No && begin > added_ - size_) --begin;
  int64_t last = begin;
  while (true) {
    batch.add_step(row(observations_, last, observation_size_),
                   {taken_[slot(last)], row(taken_amounts_, last, amounts_)}, rewards_[slot(last)],
                   row(behaviours_, last, behaviour_size_));
    if (overs_[slot(last)] != Over::No || last + 1 == added_ || last + 1 - begin == length) break;
    if (misses_ends_ && overs_[slot(last + 1)] != Over::No) break;
    ++last;
  }
  batch.end_window(overs_[slot(last)] == Over::Terminated ? Ending::Terminated : Ending::Cut,
                   row(afters_, last, observation_size_));
  return added_ - begin;
}

void Replay::save(std::ostream& out) const {
  acer::put(out, added_);
  acer::put(out, size_);
  acer::put(out, observations_);
  acer::put(out, afters_);
  acer::put(out, behaviours_);
  acer::put(out, taken_);
  acer::put(out, taken_amounts_);
  acer::put(out, rewards_);
  acer::put(out, overs_);
}

void Replay::load(std::istream& in) {
  added_ = take<int64_t>(in);
  size_ = take<int64_t>(in);
  take_into(in, observations_);
  take_into(in, afters_);
  take_into(in, behaviours_);
  take_into(in, taken_);
  take_into(in, taken_amounts_);
  take_into(in, rewards_);
  take_into(in, overs_);
}

}  // namespace farad::acer
