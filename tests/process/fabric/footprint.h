#pragma once

#include <sys/types.h>

#include <cstddef>
#include <ostream>

namespace farad::test {

/// What a process holds of the system. What two of them taken at rest differ by was left behind.
struct Footprint {
  size_t descriptors = 0;
  size_t threads = 0;
  size_t shared_mappings = 0;  ///< of memfds and /dev/shm
  size_t shm_files = 0;        ///< in /dev/shm, with our name on them: other programs have theirs there
  bool operator==(const Footprint&) const = default;

  static Footprint now();
};
std::ostream& operator<<(std::ostream& out, const Footprint& footprint);

/// Memory in use by a process, in bytes.
size_t resident_bytes(pid_t process);

}  // namespace farad::test
