#include "demo/turns.h"

#include <algorithm>
#include <utility>

namespace farad::demo {

Turns::Turns(std::vector<Action> order) : order_(std::move(order)), ended_(order_.size()) {}

Future<void> Turns::await(int micro_batch, int chunk) {
  const size_t place = place_of({Action::Kind::Forward, micro_batch, chunk});
  Promise<void> turn;
  std::vector<Promise<void>> ready;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      turn.set_exception(failure_);
    } else {
      waiting_.emplace(place, turn);
      ready = due();
    }
  }
  for (const auto& promise : ready) promise.set_value();
  return turn.future();
}

void Turns::end(const Action& action) {
  const size_t place = place_of(action);
  std::vector<Promise<void>> ready;
  {
    const std::lock_guard lock(mutex_);
    ended_[place] = true;
    kept_ += action.kind == Action::Kind::Forward ? 1 : -1;
    most_kept_ = std::max(most_kept_, kept_);
    while (first_open_ < order_.size() && ended_[first_open_]) first_open_++;
    if (first_open_ == order_.size()) {
      ended_.assign(order_.size(), false);
      first_open_ = 0;
    }
    ready = due();
  }
  for (const auto& promise : ready) promise.set_value();
}

void Turns::fail(std::exception_ptr error) {
  std::map<size_t, Promise<void>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    waiting.swap(waiting_);
  }
  for (const auto& [place, promise] : waiting) promise.set_exception(error);
}

int Turns::most_kept() const {
  const std::lock_guard lock(mutex_);
  return most_kept_;
}

std::vector<Promise<void>> Turns::due() {
  std::vector<Promise<void>> ready;
  const auto next = waiting_.find(first_open_);
  if (next == waiting_.end()) return ready;
  ready.push_back(std::move(next->second));
  waiting_.erase(next);
  return ready;
}

size_t Turns::place_of(const Action& action) const {
  const auto found = std::find(order_.begin(), order_.end(), action);
  TORCH_CHECK(found != order_.end(), "[pipeline] micro-batch ", action.micro_batch, " of chunk ", action.chunk,
              " is not in the schedule of this worker");
  return static_cast<size_t>(found - order_.begin());
}

}  // namespace farad::demo
