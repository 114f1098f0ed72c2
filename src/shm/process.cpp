#include "shm/process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace farad::shm {

std::shared_ptr<Process> Process::behind(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  // A process of a PID namespace that we cannot see has the number 0 here.
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return nullptr;
  base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  return pidfd ? std::shared_ptr<Process>(new Process(std::move(pidfd))) : nullptr;
}

bool Process::ended() const {
  pollfd wait{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace farad::shm
