#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/output.h"

namespace farad::run {

/// Makes one stream of the workers' streams, whole lines at a time, with the rank before each line if `tagged`.
///
/// Without tags not a byte is added or dropped, so that binary output survives. An unfinished line is kept until its
/// end arrives, or flush() asks for it, or it is longer than we want to keep; if another worker writes meanwhile, the
/// rest of it gets a tag of its own.
class LineMerger {
 public:
  LineMerger(Output& output, int workers, bool tagged, bool coloured);

  void take(int rank, std::string_view bytes);
  bool has_partial(int rank) const { return !partial_[static_cast<size_t>(rank)].empty(); }
  void flush(int rank);
  /// The worker writes no more.
  void end(int rank);
  /// A line of our own.
  void note(std::string_view line);

 private:
  static constexpr size_t longest_kept = size_t{64} << 10;
  static constexpr int nobody = -1;

  std::string tag_of(int rank, int workers, bool coloured) const;
  void emit(int rank, std::string_view piece);
  void break_open_line();

  Output& output_;
  bool tagged_;
  std::vector<std::string> tags_;     // by rank
  std::vector<std::string> partial_;  // by rank: what came after the last newline
  int open_ = nobody;                 // whose unfinished line is the last thing written
};

}  // namespace farad::run
