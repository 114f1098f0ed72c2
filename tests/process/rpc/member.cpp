#include "process/rpc/member.h"

#include <farad/worker.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace farad::test {

void be_a_member(const MemberPlan& plan) {
  WorkerOptions options;
  options.rank = plan.rank;
  options.size = plan.size;
  options.transport = plan.transport;
  options.rendezvous = plan.rendezvous;
  options.lost_after = std::chrono::milliseconds(plan.lost_after_ms);
  int status = 0;
  try {
    Worker::join(std::move(options)).close();
  } catch (const PeerLost&) {
    status = 1;
  } catch (...) {
    status = 2;
  }
  _exit(status);
}

}  // namespace farad::test
