#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace farad::acer {

/// A program that a test has started; ended with it.
class Program {
 public:
  /// The first is the program. What it writes, also as errors, is read here.
  explicit Program(std::vector<std::string> arguments);
  ~Program();
  Program(const Program&) = delete;

  pid_t process() const { return process_; }
  /// The processes that it has started and that are there still, in that order.
  std::vector<pid_t> children() const;
  /// Reads on until it has said that, after so many characters; false if it ends before.
  bool hear(const std::string& text, size_t from = 0);
  /// The same, but what it has said until now does not count.
  bool hear_anew(const std::string& text) { return hear(text, said_.size()); }
  /// Reads to the end; gives what it returned, or 128 + the signal that ended it.
  int wait();
  /// All that was read.
  const std::string& said() const { return said_; }

 private:
  /// False at the end.
  bool read_more();

  pid_t process_ = -1;
  int out_ = -1;
  std::string said_;
};

/// Runs it to its end.
struct Run {
  int code = 0;
  std::string said;
};
Run run(std::vector<std::string> arguments);

/// Runs farad acer to its end.
Run acer(std::vector<std::string> options);

/// A column of a CSV file, without the cells that are empty.
std::vector<double> column(const std::string& path, const std::string& name);

}  // namespace farad::acer
