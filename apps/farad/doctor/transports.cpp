#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <new>

#include "base/fd.h"
#include "doctor/checks.h"

namespace farad::doctor {
namespace {

constexpr const char* section = "transports";

/// Something that the kernel can do, found out by doing it. errno tells why not.
struct Need {
  const char* name;
  std::function<bool()> works;
  const char* advice;
};

bool sealed_memory() {
  const base::Fd memory(::memfd_create("farad-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return memory && ::ftruncate(memory.get(), 4096) == 0 &&
         ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
}

/// A process that dies with the lock in its hand must not keep it.
bool robust_mutex() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  auto* mutex = new (page) pthread_mutex_t;
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex, &attributes);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pthread_mutex_lock(mutex);
    ::_exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
  const int result = ::pthread_mutex_trylock(mutex);
  ::munmap(page, 4096);
  errno = result;
  return child > 0 && result == EOWNERDEAD;
}

bool futex_waitv() {
#if defined(SYS_futex_waitv)
  // Waiting for nothing is an error that only a kernel which knows the call can find.
  return ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) < 0 && errno != ENOSYS;
#else
  errno = ENOSYS;
  return false;
#endif
}

bool pidfd() {
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return static_cast<bool>(process);
}

bool abstract_socket() {
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Only the family: the kernel chooses a free abstract name.
  return socket && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0 &&
         ::listen(socket.get(), 1) == 0;
}

bool loopback() {
  const base::Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const base::Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  return server && client && ::bind(server.get(), generic, size) == 0 && ::listen(server.get(), 1) == 0 &&
         ::getsockname(server.get(), generic, &size) == 0 && ::connect(client.get(), generic, size) == 0;
}

/// Good if all needs are met; else what is missing. Without shm workers still talk, over the loopback.
Finding transport(const char* name, const std::vector<Need>& needs, Verdict otherwise, const char* works) {
  for (const auto& need : needs) {
    if (!need.works()) {
      return {section, name, std::string("no ") + need.name + ": " + std::strerror(errno), otherwise, need.advice};
    }
  }
  return {section, name, works};
}

}  // namespace

Findings check_transports() {
  constexpr const char* sandbox = "a sandbox (seccomp) or an old kernel refuses it: allow it, or use tcp";
  return {
      {section, "local", "available: workers of one process"},
      transport("shm",
                {{"sealed memfd", sealed_memory, sandbox},
                 {"robust process-shared mutex", robust_mutex, sandbox},
                 {"abstract unix socket", abstract_socket, sandbox},
                 {"pidfd", pidfd, "needs Linux 5.3 or later; until then use tcp"}},
                Verdict::Warning, "available: processes of this machine; /dev/shm is not needed"),
      transport("tcp", {{"loopback", loopback, "bring it up: ip link set lo up; and look at the firewall"}},
                Verdict::Broken, "available: this machine and others"),
      transport("futex_waitv",
                {{"futex_waitv", futex_waitv, "needs Linux 5.16 or later; waits take another way without"}},
                Verdict::Good, "available"),
  };
}

}  // namespace farad::doctor
