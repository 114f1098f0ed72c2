#pragma once

#include <memory>

#include "base/fd.h"

namespace farad::shm {

/// Another process, of which we can tell for certain whether it has ended. (That it is silent, or stopped, or hung up,
/// says nothing about what it may still write.)
class Process {
 public:
  /// The one that connected this unix socket; null if the kernel cannot say.
  static std::shared_ptr<Process> behind(int socket);

  bool ended() const;

 private:
  explicit Process(base::Fd pidfd) : pidfd_(std::move(pidfd)) {}
  const base::Fd pidfd_;
};

}  // namespace farad::shm
