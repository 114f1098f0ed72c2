#include "process/nursery.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace farad::test {

struct NurseryRequest {
  pid_t bury = 0;  // 0: bear one
  Nursery::Birth birth = nullptr;
  Nursery::Bytes plan{};
};

namespace {

int to_nursery = -1;

[[noreturn]] void nurse(int requests) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(0);
  NurseryRequest request;
  while (recv(requests, &request, sizeof request, 0) == sizeof request) {
    int answer = 0;
    if (request.bury) {
      waitpid(request.bury, &answer, 0);
    } else {
      answer = fork();
      if (answer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(requests);
        request.birth(request.plan);
        std::abort();  // It was to end the process itself.
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

int ask(const NurseryRequest& request) {
  int answer = -1;
  if (send(to_nursery, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
      recv(to_nursery, &answer, sizeof answer, 0) != sizeof answer) {
    throw std::runtime_error("the nursery has ended");
  }
  return answer;
}

}  // namespace

pid_t Nursery::bear(const Bytes& plan, Birth birth) { return ask({.birth = birth, .plan = plan}); }

int Nursery::bury(pid_t child) { return ask({.bury = child}); }

void Nursery::kill(pid_t child) {
  ::kill(child, SIGKILL);
  (void)bury(child);
}

}  // namespace farad::test
