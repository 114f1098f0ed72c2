#include "shm/seen_by_tsan.h"

#ifdef FARAD_SEEN_BY_TSAN

#include <sanitizer/tsan_interface.h>
#include <sys/stat.h>

#include <functional>

namespace farad::shm {
namespace {

// Two memories that share a place here are taken for ordered although they are not: a race may be missed, none is
// made up.
char meeting_points[1 << 16];

}  // namespace

SeenByTsan::SeenByTsan(const Memory& memory, size_t place) {
  struct stat info{};
  ::fstat(memory.fd(), &info);  // What both mappings have in common.
  const size_t hash = std::hash<size_t>()(info.st_ino) * 31 + place / 64;
  meeting_point_ = &meeting_points[hash % sizeof(meeting_points)];
}

void SeenByTsan::before_store() const { __tsan_release(meeting_point_); }
void SeenByTsan::after_load() const { __tsan_acquire(meeting_point_); }

}  // namespace farad::shm

#endif
