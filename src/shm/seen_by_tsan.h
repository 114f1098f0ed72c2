#pragma once

#include <cstddef>

#include "shm/memory.h"

#if defined(__SANITIZE_THREAD__)
#define FARAD_SEEN_BY_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FARAD_SEEN_BY_TSAN 1
#endif
#endif

namespace farad::shm {

/// An order that two mappings of the same memory give to the threads of one process, told to ThreadSanitizer: it knows
/// memory by its address, so it does not see that a store through one mapping is what a load through the other found.
/// Both ends make theirs of the same memory and place. Nothing at all in other builds.
class SeenByTsan {
 public:
  SeenByTsan() = default;
#ifdef FARAD_SEEN_BY_TSAN
  SeenByTsan(const Memory& memory, size_t place);
  /// Just before the store that others may find.
  void before_store() const;
  /// Just after the load that may have found it.
  void after_load() const;

 private:
  char* meeting_point_ = nullptr;
#else
  SeenByTsan(const Memory&, size_t) {}
  void before_store() const {}
  void after_load() const {}
#endif
};

}  // namespace farad::shm
