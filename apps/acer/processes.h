#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace farad::acer {

/// Forks a process that does `life` and ends: with 0, or with 1 and a line on standard error if that throws. It is
/// killed if the process that forked it ends first.
pid_t start_process(const std::function<void()>& life);

/// How a process ended, from waitpid's status: "was ended by Killed", "returned 1".
std::string ending_of(int status);

/// Both ends of a pipe, closed with it.
class Pipe {
 public:
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_reading() { close(0); }
  void close_writing() { close(1); }

 private:
  void close(int end);
  int ends_[2] = {-1, -1};
};

}  // namespace farad::acer
