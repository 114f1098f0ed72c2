#pragma once

#include <string>

namespace farad::run {

/// How a process ended: what waitpid() tells, in words and as the code that a shell would return.
class Outcome {
 public:
  explicit Outcome(int wait_status) : status_(wait_status) {}

  bool success() const { return status_ == 0; }
  bool signalled() const;
  /// The exit code, or 128 + signal.
  int code() const;
  /// "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped".
  std::string text() const;

 private:
  int status_;
};

/// "SIGTERM"
std::string signal_name(int signal);

}  // namespace farad::run
