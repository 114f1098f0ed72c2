#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "run/line_merger.h"
#include "run/options.h"
#include "run/output.h"

namespace farad::run {

/// The workers' standard output and error on their way to ours.
class Streams {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Streams(const RunOptions& options, bool colours);

  void add(int rank, base::Fd out, base::Fd err);
  /// A line of our own on standard error.
  void note(std::string_view line) { err_lines_.note(line); }

  /// What to wait for, appended to `polled`; then handle() with what poll() made of it.
  void watch(std::vector<pollfd>& polled) const;
  void handle(const std::vector<pollfd>& polled, TimePoint now);
  /// When to handle() at the latest: an unfinished line is due to be shown, or what is left can be read without
  /// waiting.
  TimePoint deadline() const;

  /// No worker is left: what has not been read yet is all there will be. A pipe may still be open elsewhere.
  void expect_no_more();
  bool done() const { return streams_.empty() && out_.empty() && err_.empty(); }
  /// Why our output cannot be written any more, as errno, or 0.
  int error() const { return out_.error() != 0 ? out_.error() : err_.error(); }

 private:
  struct Stream {
    int rank;
    base::Fd fd;
    Output* output;
    LineMerger* lines;
    TimePoint shown_by;
  };

  /// False at its end.
  bool read_from(Stream& stream, TimePoint now);
  void show_overdue(TimePoint now);

  Output out_;
  Output err_;
  LineMerger out_lines_;
  LineMerger err_lines_;
  std::vector<Stream> streams_;
  bool last_reads_ = false;
};

}  // namespace farad::run
