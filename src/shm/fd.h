#pragma once

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace farad::shm {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Sends `bytes` (not empty) with descriptors beside them over a unix socket, whole or not at all.
base::Status send_with_fds(int socket, const std::string& bytes, const std::vector<int>& fds, base::TimePoint deadline);

/// Receives exactly `size` bytes and exactly `count` descriptors sent by one send_with_fds. Whatever descriptors come
/// beyond that are closed.
base::Status receive_with_fds(int socket, size_t size, size_t count, std::string& bytes, std::vector<Fd>& fds,
                              base::TimePoint deadline);

/// "[shm] mmap: Cannot allocate memory", from errno.
base::Status system_error(const std::string& what);

}  // namespace farad::shm
