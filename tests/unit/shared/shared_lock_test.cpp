// The lock of a model: it is not fair by itself, and who has just had it lets others go first.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <memory>
#include <thread>

#include "shared/lock.h"

namespace farad::shared {
namespace {

/// This thread shares one core with the others that do this, and does not interrupt them when it wakes: then the one
/// that runs has the lock again before any that sleeps, unless it lets that one go first.
void share_a_core() {
  cpu_set_t may, one;
  ::sched_getaffinity(0, sizeof may, &may);
  int core = 0;
  while (!CPU_ISSET(core, &may)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
}

TEST(SharedLock, WhoHasJustHadItLetsOneThatWaitsGoFirst) {
  constexpr int rounds = 200;
  const auto lock = std::make_unique<Lock>();
  lock->prepare();
  std::atomic<int> wanted = 0, had = 0;
  int first = 0;
  std::thread greedy([&] {
    share_a_core();
    Lock::Manners manners;
    bool abandoned = false;
    for (int round = 1; round <= rounds; ++round) {
      lock->acquire(manners, base::never, abandoned).raise();
      wanted = round;
      while (!lock->somebody_waits()) std::this_thread::yield();
      lock->release(manners);
      lock->acquire(manners, base::never, abandoned).raise();
      first += had == round;
      lock->release(manners);
      while (had < round) std::this_thread::yield();
    }
  });
  std::thread patient([&] {
    share_a_core();
    Lock::Manners manners;
    bool abandoned = false;
    for (int round = 1; round <= rounds; ++round) {
      while (wanted < round) std::this_thread::yield();
      lock->acquire(manners, base::never, abandoned).raise();
      had = round;
      lock->release(manners);
    }
  });
  greedy.join();
  patient.join();
  EXPECT_GT(first, rounds / 4) << "of " << rounds << "; others may keep the core from them for a while";
}

}  // namespace
}  // namespace farad::shared
