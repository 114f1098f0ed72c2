#include "process/rpc/nursery.h"

#include <farad/worker.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace farad::test {
namespace {

struct Request {
  pid_t bury = 0;  // 0: bear one
  MemberPlan plan;
};

int to_nursery = -1;

[[noreturn]] void be_a_member(const MemberPlan& plan) {
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

[[noreturn]] void nurse(int requests) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(0);
  Request request;
  while (recv(requests, &request, sizeof request, 0) == sizeof request) {
    int answer = 0;
    if (request.bury) {
      waitpid(request.bury, &answer, 0);
    } else {
      answer = fork();
      if (answer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(requests);
        be_a_member(request.plan);
      }
    }
    if (send(requests, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
  }
  _exit(0);  // The test has ended; children of ours end with us.
}

class Opening final : public testing::Environment {
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    nursery_ = fork();
    ASSERT_GE(nursery_, 0);
    if (nursery_ == 0) {
      close(ends[0]);
      nurse(ends[1]);
    }
    close(ends[1]);
    to_nursery = ends[0];
  }
  void TearDown() override {
    close(to_nursery);
    waitpid(nursery_, nullptr, 0);
  }

  pid_t nursery_ = -1;
};

const auto* const opening = testing::AddGlobalTestEnvironment(new Opening);

int ask(const Request& request) {
  int answer = -1;
  if (send(to_nursery, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
      recv(to_nursery, &answer, sizeof answer, 0) != sizeof answer) {
    throw std::runtime_error("the nursery has ended");
  }
  return answer;
}

}  // namespace

pid_t Nursery::bear(const MemberPlan& plan) {
  Request request;
  request.plan = plan;
  return ask(request);
}

int Nursery::bury(pid_t child) {
  Request request;
  request.bury = child;
  return ask(request);
}

}  // namespace farad::test
