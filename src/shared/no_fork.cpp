#include "shared/no_fork.h"

#include <pthread.h>

#include <mutex>

namespace farad::shared {
namespace {

/// Of the whole process, because a fork is. It is never destroyed: threads may outlive main().
std::mutex& forking() {
  static std::mutex& mutex = *[] {
    static auto* const made = new std::mutex;
    ::pthread_atfork([] { made->lock(); }, [] { made->unlock(); }, [] { made->unlock(); });
    return made;
  }();
  return mutex;
}

}  // namespace

NoFork::NoFork() { forking().lock(); }
NoFork::~NoFork() { forking().unlock(); }

}  // namespace farad::shared
