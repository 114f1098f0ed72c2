#pragma once

#include <sys/types.h>

#include "process/fabric/peer.h"

namespace farad::test {

/// Where the processes of a test come from. A process with threads must not fork, and loading libtorch anew takes half
/// a second; so one process is forked before there are threads, does nothing but fork, and ends with the test.
class Nursery {
 public:
  /// Made once for the program, before its first test.
  static Nursery& instance();

  /// A process that behaves as planned.
  pid_t bear(const PeerPlan& plan);
  /// Waits for the end of one; as waitpid's status.
  int bury(pid_t child);
  /// kill -9, and waits for the end.
  void kill(pid_t child);
};

}  // namespace farad::test
