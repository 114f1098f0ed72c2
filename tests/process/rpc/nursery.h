#pragma once

#include <sys/types.h>

#include <string>

namespace farad::test {

/// Plain bytes, because it travels through a socket.
struct MemberPlan {
  char transport[8] = {};
  char rendezvous[120] = {};
  int rank = 1;
  int size = 2;
  int lost_after_ms = 3000;
};

/// Where the members in processes of their own come from. A process with threads must not fork, and loading libtorch
/// anew takes half a second; so one process is forked before there are threads, does nothing but fork, and ends with
/// the test.
class Nursery {
 public:
  /// A process that joins, serves calls and closes when the others do.
  static pid_t bear(const MemberPlan& plan);
  /// Waits for the end of one; as waitpid's status.
  static int bury(pid_t child);
};

}  // namespace farad::test
