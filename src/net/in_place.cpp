#include "net/in_place.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace farad::net {
namespace {

constexpr uint32_t times_to_know = 3;
/// One time beyond this says no more than that it was long: a worker that was stopped for a minute, say.
constexpr int64_t most = 1'000'000;
constexpr uint32_t last_times = 0xF;
constexpr int64_t limit_ns = std::chrono::nanoseconds(Cost::limit).count();

}  // namespace

bool Cost::is_short() const {
  return times_.load(std::memory_order_relaxed) >= times_to_know &&
         estimate_.load(std::memory_order_relaxed) <= limit_ns;
}

void Cost::note(base::Duration took) {
  const int64_t time = std::clamp<int64_t>(std::chrono::nanoseconds(took).count(), 0, most);
  // Two threads that note at once may lose one of the times, which is no harm.
  const uint32_t long_ones = (long_ones_.load(std::memory_order_relaxed) << 1 | (time > limit_ns)) & last_times;
  long_ones_.store(long_ones, std::memory_order_relaxed);
  if (time > limit_ns && is_short() && std::has_single_bit(long_ones)) return;
  const uint32_t before = estimate_.load(std::memory_order_relaxed);
  const int64_t old = before == unknown ? time : int64_t{before};
  estimate_.store(static_cast<uint32_t>(time > old ? (old + time) / 2 : old - (old - time) / 8),
                  std::memory_order_relaxed);
  if (const uint32_t times = times_.load(std::memory_order_relaxed); times < times_to_know) {
    times_.store(times + 1, std::memory_order_relaxed);
  }
}

InPlace::InPlace(base::Runtime& runtime, Driver& driver, base::Executor& executor)
    : runtime_(runtime), driver_(driver), executor_(executor) {
  driver_.residents().set_overflow([&executor](Residents::Task task) {
    if (!executor.post(std::move(task))) task();  // There is no thread for it: late and here is better than never.
  });
}

bool InPlace::run_noting(const Cost& cost, std::function<void()>&& task) {
  if (cost.is_short() && driver_.residents().run_in_place(task)) return true;
  return executor_.post(std::move(task));
}

}  // namespace farad::net
