#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace farad::shm {

/// Sends `bytes` (not empty) with descriptors beside them over a unix socket, whole or not at all.
base::Status send_with_fds(int socket, const std::string& bytes, const std::vector<int>& fds, base::TimePoint deadline);

/// Receives exactly `size` bytes and exactly `count` descriptors sent by one send_with_fds. Whatever descriptors come
/// beyond that are closed. Invalid if we have no room for them: the system has dropped them then.
base::Status receive_with_fds(int socket, size_t size, size_t count, std::string& bytes, std::vector<base::Fd>& fds,
                              base::TimePoint deadline);

/// How many descriptors this process may have open (`ulimit -n`).
size_t most_descriptors();

/// "[shm] mmap: Cannot allocate memory", from errno.
base::Status system_error(const std::string& what);

}  // namespace farad::shm
