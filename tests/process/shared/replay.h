#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "process/shared/ledger.h"

namespace farad::test {

/// The same updates by one process, from the ledger alone: what each element of the model has to be. By SGD with a rate
/// of one, from zero on.
class Replay {
 public:
  enum class Of {
    Gradients,  ///< their mean by samples; with a momentum of one, so that what is remembered must be right too
    Copies      ///< of the values, averaged
  };
  explicit Replay(const Ledger& ledger, Of of) : ledger_(ledger), of_(of) {}

  /// Up to that version. What is wrong with the ledger, if anything is: then it goes no further.
  std::string follow(uint64_t version);
  /// Of that version; none if the ledger has gone on too far to follow it.
  bool reached(uint64_t version) const { return states_.size() == version + 1; }
  double value() const { return states_.back().value; }
  /// How many steps of a worker are in there.
  uint64_t applied(int worker) const;

 private:
  struct State {
    double value = 0;
    double samples = 0;  ///< that have gone into it
  };
  struct Worker {
    uint64_t last = 0, applied = 0;
  };
  std::string add(const Ledger::Line& line);
  std::string add_gradients(const std::vector<Ledger::Part>& parts);
  std::string add_copies(const std::vector<Ledger::Part>& parts);

  const Ledger& ledger_;
  const Of of_;
  std::vector<State> states_{1};  // by version
  double momentum_ = 0;
  std::map<int64_t, Worker> workers_;
};

}  // namespace farad::test
