#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "acer/evaluation.h"
#include "acer/event_file.h"
#include "acer/metrics.h"

namespace farad::acer {

/// What a training writes into its directory on its way, and tells of it on standard output: rows of metrics, of its
/// workers' rates and of evaluations, the metrics as events too, and pictures at the end.
class Journal {
 public:
  /// `after`: how many steps had been made where this run goes on with another one's.
  explicit Journal(const std::string& out, std::optional<int64_t> after = {});

  /// A row of metrics, with the rates of each worker, and a line of progress if there was any.
  void report(const Row& metrics, const std::vector<Metrics::Rate>& rates);
  /// `seconds` that the training has taken.
  void heard(const Evaluation& evaluation, double seconds);
  /// A line of its own, on standard output.
  void tell(const std::string& what) const;
  /// The same as an error.
  void complain(const std::string& what) const;
  /// The last line of progress is over.
  void end_line() const;

  /// Pictures of all that was written: returns by steps and by seconds, and by how much updates were late.
  void draw(const std::vector<uint64_t>& staleness) const;

 private:
  const std::string out_;
  CsvFile rows_, rates_, evaluations_;
  EventFile events_;
  const bool terminal_;  // Where one line of progress is written over the one before.
};

}  // namespace farad::acer
