#include "acer/processes.h"

#include <farad/error.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

namespace farad::acer {

pid_t start_process(const std::function<void()>& life) {
  std::fflush(nullptr);  // What is not written yet would be written by both.
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(std::string("[acer] fork: ") + std::strerror(errno));
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // It ended before that.
  try {
    life();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "\nfarad acer: %s\n", error.what_without_backtrace());
    ::_exit(1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "\nfarad acer: %s\n", error.what());
    ::_exit(1);
  }
  ::_exit(0);  // What else there is to end belongs to the parent.
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return std::string("was ended by ") + ::strsignal(WTERMSIG(status));
  return "returned " + std::to_string(WEXITSTATUS(status));
}

Pipe::Pipe() {
  if (::pipe2(ends_, O_CLOEXEC) != 0) throw Error(std::string("[acer] pipe: ") + std::strerror(errno));
}

Pipe::~Pipe() {
  close(0);
  close(1);
}

void Pipe::close(int end) {
  if (ends_[end] >= 0) ::close(ends_[end]);
  ends_[end] = -1;
}

}  // namespace farad::acer
