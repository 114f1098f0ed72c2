#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace farad::test {

struct CommandOptions {
  /// Set in the command's environment; an empty value unsets. Variables of the table that the test itself was started
  /// with are unset first.
  std::map<std::string, std::string> environment = {};
  std::string input = {};
  /// Give it a terminal of its own instead of pipes; everything it writes is then `out`.
  bool terminal = false;
};

/// A started program and everything that comes of it. Whatever is awaited here is given a minute, which is an end for
/// what hangs and no measure of speed.
class Command {
 public:
  explicit Command(std::vector<std::string> arguments, CommandOptions options = {});
  ~Command();
  Command(const Command&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  /// Until `text` has been written to standard output `times` times; false if it ended before.
  bool wait_for(std::string_view text, int times = 1);
  void signal(int signal) const { ::kill(pid_, signal); }
  /// What a terminal does with what somebody types.
  void type(std::string_view text) const;
  /// No more of its standard output will be read.
  void close_out();
  /// Reads everything to the end and returns the exit code, 128 + signal if a signal ended it.
  int finish();
  /// Until no process is left that came of it; they all hold the end of a pipe. False if some stay.
  bool everything_ended();

 private:
  bool read_some();

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  int life_fd_ = -1;  // Ends when the last process is gone.
  bool ended_ = false;
  std::string out_;
  std::string err_;
};

std::vector<std::string> lines_of(std::string_view text);
int count_of(std::string_view text, std::string_view part);

}  // namespace farad::test
