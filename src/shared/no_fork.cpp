#include "shared/no_fork.h"

#include <pthread.h>

#include <mutex>
#include <type_traits>

namespace farad::shared {
namespace {

// Of the whole process, because a fork is, and there before main() begins: if it were made at its first use, by another
// thread, a child that is forked off meanwhile would wait for ever for it to be made.
constinit std::mutex forking;
static_assert(std::is_trivially_destructible_v<std::mutex>);  // Threads may outlive main().

[[maybe_unused]] const int told =
    ::pthread_atfork([] { forking.lock(); }, [] { forking.unlock(); }, [] { forking.unlock(); });

}  // namespace

NoFork::NoFork() { forking.lock(); }
NoFork::~NoFork() { forking.unlock(); }

}  // namespace farad::shared
