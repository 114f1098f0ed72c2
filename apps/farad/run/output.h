#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace farad::run {

/// Bytes on their way to a descriptor of ours that may be slow to take them. Writing never blocks, so that a reader who
/// has stopped cannot keep us from our signals; and never makes the descriptor non-blocking, because it is shared with
/// whoever started us.
class Output {
 public:
  explicit Output(int fd);

  void put(std::string_view bytes) { queue_ += bytes; }
  /// Enough for now: take nothing more from the workers until some of it is written.
  bool full() const { return queue_.size() - written_ >= enough; }
  bool empty() const { return written_ == queue_.size(); }
  /// Why it takes no more, as errno, or 0; what is put here from then on is dropped.
  int error() const { return error_; }

  int fd() const { return fd_; }
  bool terminal() const { return terminal_; }

  /// After poll() said that the descriptor takes bytes.
  void write_some();

 private:
  static constexpr size_t enough = size_t{1} << 20;

  int fd_;
  bool terminal_;
  size_t piece_;  // What a single write can pass without blocking, once poll() said POLLOUT.
  int error_ = 0;
  std::string queue_;
  size_t written_ = 0;
};

}  // namespace farad::run
