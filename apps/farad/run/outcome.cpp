#include "run/outcome.h"

#include <string.h>
#include <sys/wait.h>

namespace farad::run {

bool Outcome::signalled() const { return WIFSIGNALED(status_); }

int Outcome::code() const { return signalled() ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_); }

std::string Outcome::text() const {
  if (!signalled()) return "exit code " + std::to_string(code());
  const int signal = WTERMSIG(status_);
  std::string result = "killed by " + signal_name(signal) + " (" + ::strsignal(signal) + ')';
  if (WCOREDUMP(status_)) result += ", core dumped";
  return result;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace farad::run
