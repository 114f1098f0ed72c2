#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace farad {

/// What one worker has in hand at one instant; see Worker::debug(). Written to a stream it reads as a list.
struct Debug {
  struct Call {
    std::string function;
    std::string peer;  ///< who was called, or who calls
    std::chrono::milliseconds age{0};
  };
  struct Reference {
    std::string id;      ///< "worker0#17": who made it, and that one's number for it
    std::string owner;   ///< where the value lives
    std::string origin;  ///< where it came from: `remote of "make" by worker0`, `RRef::local at train.cpp:12`
    std::vector<std::string> holders = {};  ///< of one that lives here: who else holds it; of one on its way: to whom
  };

  /// This worker's part in a backward pass that has not ended.
  struct Pass {
    std::string root;                         ///< who began it
    uint64_t number = 0;                      ///< of its passes in this context, from 1
    std::string state;                        ///< "runs", "done here", ...
    size_t nodes = 0;                         ///< functions that it has to do with here
    size_t fired = 0;                         ///< of them: they have run, or no root leads to them
    size_t running = 0;                       ///< of them: they run now
    std::vector<std::string> waits_for = {};  ///< workers, for gradients; once all have fired, for the verdict
  };
  struct Context {
    int64_t id = 0;
    size_t sends = 0;               ///< messages in need of gradients that went from here
    size_t recvs = 0;               ///< and that came here
    std::vector<Pass> passes = {};  ///< that run
  };

  std::vector<Call> made;         ///< calls of this worker that wait for their reply
  std::vector<Call> running;      ///< calls of others that run here, or wait for what they need
  std::vector<Reference> owned;   ///< values that live here
  std::vector<Reference> held;    ///< values of others, which this worker keeps alive
  std::vector<Reference> lent;    ///< on their way to a third worker, kept until their owner knows
  std::vector<Context> contexts;  ///< that this worker takes part in
  size_t unsettled = 0;           ///< notes between workers about references, and cancellations, that wait for others

  bool empty() const {
    return made.empty() && running.empty() && owned.empty() && held.empty() && lent.empty() && contexts.empty() &&
           unsettled == 0;
  }
};

std::ostream& operator<<(std::ostream&, const Debug&);

}  // namespace farad
