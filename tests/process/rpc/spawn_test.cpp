// spawn() forks, so no case here may leave a thread behind, and the one that starts a thread comes last.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <farad/autograd.h>
#include <farad/shared.h>
#include <farad/spawn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>
#include <thread>

namespace farad::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int64_t process_here() { return getpid(); }
void fails() { throw std::out_of_range("too far"); }

template <class E>
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// A number that all processes see.
class Shared {
 public:
  Shared() {
    void* at = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    value_ = new (at) std::atomic<int>(0);
  }
  ~Shared() { munmap(value_, sizeof(std::atomic<int>)); }
  std::atomic<int>& operator*() { return *value_; }

 private:
  std::atomic<int>* value_;
};

/// Attaches to the model that it is told of, and steps it.
int64_t step_model(const std::string& name) {
  torch::nn::Linear module(2, 2);
  auto model = shared::Model::attach(name, module);
  return static_cast<int64_t>(model.step({at::ones({2, 2}), at::ones({2})}).version);
}

TEST(Spawn, ForksBesideAModelThatEachProcessUsesOrIsToldOfByACall) {
  Shared right;
  const auto name = "test-spawn-" + std::to_string(getpid());
  torch::nn::Linear module(2, 2);
  const auto before = module->bias.detach().clone();
  auto model = shared::Model::create(name, module, torch::optim::SGDOptions(1));
  spawn(2, [&](Worker& worker) {
    *right += model.step({at::ones({2, 2}), at::ones({2})}).worker > 0;
    if (worker.rank() == 0) *right += worker.rpc_sync<step_model>("worker1", name) > 0;
  });
  EXPECT_EQ(*right, 3);
  EXPECT_EQ(model.version(), 3u);
  EXPECT_TRUE(at::equal(module->bias, before - 1 - 1 - 1));
}

TEST(Spawn, RunsEachMemberInAProcessOfItsOwn) {
  Shared right;
  spawn(3, [&](Worker& worker) {
    const auto next = worker.rpc_sync<process_here>((worker.rank() + 1) % 3);
    *right += worker.size() == 3 && next != getpid() && Worker::current().rank() == worker.rank();
  });
  EXPECT_EQ(*right, 3);
}

TEST(Spawn, FailureOfAMemberIsThrownWithItsTypeAndText) {
  for (int failing = 0; failing < 3; ++failing) {
    try {
      spawn(3, [&](Worker& worker) {
        if (worker.rank() == failing) throw std::invalid_argument("not like this");
        worker.barrier();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.type(), "std::invalid_argument");
      EXPECT_EQ(error.text(), "not like this");
      EXPECT_THAT(error.hops(), testing::ElementsAre("spawn", "worker" + std::to_string(failing)));
    }
  }
}

TEST(Spawn, FailureOfACallKeepsItsChain) {
  try {
    spawn(2, [](Worker& worker) {
      if (worker.rank() == 0) worker.rpc_sync<fails>("worker1");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const RemoteError& error) {
    EXPECT_THAT(error.hops(), testing::ElementsAre("spawn", "worker0", HasSubstr("worker1 \"")));
    EXPECT_EQ(error.text(), "too far");
  }
}

TEST(Spawn, LongTextsDoNotHoldItUp) {
  EXPECT_THROW(spawn(1, [](Worker&) { throw std::runtime_error(std::string(1'000'000, 'x')); }), RemoteError);
}

TEST(Spawn, DeathOfAMemberIsThrownAsItsLoss) {
  for (int dying = 0; dying < 3; ++dying) {
    EXPECT_THAT(message_of<PeerLost>([&] {
                  spawn(3, [&](Worker& worker) {
                    if (worker.rank() == dying) raise(SIGKILL);
                    worker.barrier();
                  });
                }),
                AllOf(HasSubstr("worker" + std::to_string(dying)), HasSubstr("Killed")));
  }
  EXPECT_THAT(message_of<PeerLost>([] { spawn(2, [](Worker& worker) { _exit(worker.rank() == 1 ? 7 : 0); }); }),
              AllOf(HasSubstr("worker1"), HasSubstr("7")));
}

TEST(Spawn, EndingBeforeTheFunctionReturnsIsALossWhateverTheCode) {
  EXPECT_THAT(message_of<PeerLost>([] {
                spawn(2, [](Worker& worker) {
                  if (worker.rank() == 1) _exit(0);
                  worker.barrier();
                });
              }),
              AllOf(HasSubstr("worker1"), HasSubstr("0")));
}

int64_t add_one(int64_t x) { return x + 1; }

/// Returns once `pid` is no more, not even as one that its parent has not looked after; or after a while.
void await_burial(pid_t pid) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (::kill(pid, 0) == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

TEST(Spawn, ThoseWhoDoNotFailSeeTheLossAndGoOn) {
  Shared process, went_on;
  const auto member = [&](Worker& worker) {
    if (worker.rank() == 1) *process = getpid();
    worker.barrier();
    if (worker.rank() == 1) raise(SIGKILL);
    await_burial(*process);  // From here on the parent knows.
    const bool called = worker.rpc_sync<add_one>(2 - worker.rank(), 1) == 2;
    try {
      worker.close();
    } catch (const PeerLost&) {
      *went_on += called;
    }
  };
  EXPECT_THROW(spawn(3, member), PeerLost);
  EXPECT_EQ(*went_on, 2);
}

static std::atomic<int>* survivor;  // its process
static std::atomic<int>* in_backward;

/// Its process ends in the backward pass, but not before that of the survivor has.
at::Tensor ends_in_backward(const at::Tensor& x) {
  const auto y = x * 1;
  y.register_hook([](const at::Tensor&) {
    *in_backward = 1;
    await_burial(*survivor);
    raise(SIGKILL);
  });
  return y;
}

TEST(Spawn, PassThatALossHasAbortedIsNotWhatFailedFirst) {
  Shared process, begun;
  survivor = &*process;
  in_backward = &*begun;
  const auto member = [](Worker& worker) {
    if (worker.rank() == 0) {
      *survivor = getpid();
      Context context(worker);
      context.backward({worker.rpc_sync<ends_in_backward>("worker1", at::ones({2}).requires_grad_()).sum()});
    } else {
      while (*in_backward == 0) std::this_thread::yield();
      const Worker ended = std::move(worker);  // The other one sees the loss from here on.
    }
  };
  EXPECT_THAT(message_of<PeerLost>([&] { spawn(2, member); }), AllOf(HasSubstr("worker1"), HasSubstr("Killed")));
}

TEST(Spawn, AbortedPassIsThrownWhereNothingElseFailed) {
  try {
    spawn(1, [](Worker&) { throw Aborted("[autograd] of nobody's making"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.type(), "farad::Aborted");
  }
}

TEST(Spawn, FailureEndsThoseWhoWait) {
  EXPECT_THROW(spawn(2,
                     [](Worker& worker) {
                       if (worker.rank() == 1) throw std::runtime_error("over");
                       pause();
                     }),
               RemoteError);
}

TEST(Spawn, FailureIsHeardOfThoughAProcessOfTheMembersLivesOn) {
  Shared left_behind;
  EXPECT_THROW(spawn(1,
                     [&](Worker&) {
                       const pid_t pid = fork();
                       if (pid == 0) {
                         alarm(600);  // Longer than this test may take: nobody is to wait for it.
                         while (true) pause();
                       }
                       *left_behind = pid;
                       throw std::runtime_error("over");
                     }),
               RemoteError);
  EXPECT_EQ(kill(*left_behind, SIGKILL), 0);
}

TEST(Spawn, MemberWhoseEndSomebodyElseTakesCountsAsLost) {
  const auto before = signal(SIGCHLD, SIG_IGN);  // Then it is the kernel that takes it.
  EXPECT_THAT(message_of<PeerLost>([] { spawn(1, [](Worker&) {}); }),
              AllOf(HasSubstr("worker0"), HasSubstr("SIGCHLD")));
  signal(SIGCHLD, before);
}

TEST(Spawn, WhereOneCannotBeBornTheOthersAreEnded) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDIN_FILENO);
  close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 3;  // A pipe for one, and word of its end.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_THROW(spawn(8, [](Worker&) { pause(); }), c10::Error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a member is left";
}

TEST(Spawn, WritesOfMembersAreNotLostAndThoseOfTheParentNotDoubled) {
  const auto path = std::filesystem::temp_directory_path() / ("farad-spawn-test-" + std::to_string(getpid()));
  std::cout.flush();
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
  dup2(file, STDOUT_FILENO);  // Files are buffered more than terminals are.
  std::printf("parent\n");
  spawn(2, [](Worker& worker) { std::printf("member %d\n", worker.rank()); });
  EXPECT_THROW(spawn(1,
                     [](Worker&) {
                       std::cout << "last words\n";
                       throw std::runtime_error("over");
                     }),
               RemoteError);
  std::fflush(stdout);
  dup2(before, STDOUT_FILENO);
  close(before);
  close(file);
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);

  const std::string text = all.str();
  for (const char* line : {"parent\n", "member 0\n", "member 1\n", "last words\n"}) {
    EXPECT_NE(text.find(line), text.npos) << line;
    EXPECT_EQ(text.find(line), text.rfind(line)) << line << " came twice";
  }
}

TEST(Spawn, WhatAMemberOfNoneWouldBeIsRefused) {
  EXPECT_THROW(spawn(0, [](Worker&) {}), Error);
}

/// Forks a child that calls spawn: 0 if that works, 1 if it is refused.
int spawns_in_a_child() {
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      spawn(2, [](Worker& worker) { worker.barrier(); });
    } catch (...) {
      code = 1;
    }
    _exit(code);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Spawn, WorksInAProcessThatWasForkedOff) { EXPECT_EQ(spawns_in_a_child(), 0); }

/// Whether spawn is refused, in words that have `why` in them, in a child that has done `before`.
bool is_refused_after(const std::function<void()>& before, const char* why) {
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      before();
      spawn(1, [](Worker&) {});
    } catch (const Error& error) {
      refused = std::string(error.what_without_backtrace()).find(why) != std::string::npos;
    } catch (...) {
    }
    _exit(refused ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

TEST(Spawn, IsRefusedOnceAWorkerHasJoinedWhetherItIsClosedOrNot) {
  const WorkerOptions alone{.rank = 0, .size = 1, .rendezvous = "local://alone"};
  EXPECT_TRUE(is_refused_after([&] { static Worker open = Worker::join(alone); }, "a Worker has joined"));
  EXPECT_TRUE(is_refused_after([&] { Worker::join(alone).close(); }, "a Worker has joined"));
  EXPECT_TRUE(is_refused_after([] { spawn_threads(2, [](Worker&) {}); }, "a Worker has joined"));
  EXPECT_FALSE(is_refused_after([] { spawn(2, [](Worker&) {}); }, "")) << "those were other processes'";
}

TEST(Spawn, IsRefusedOnceLibtorchHasRunInParallel) {
  const auto run = [](int threads) {
    at::set_num_threads(threads);
    at::ones({1 << 22}).exp_();
  };
  EXPECT_FALSE(is_refused_after([&] { run(1); }, ""));
  EXPECT_TRUE(is_refused_after([&] { run(2); }, "this process has started"));
}

TEST(SpawnLast, IsRefusedOnceThereAreThreads) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) std::this_thread::yield();
  });
  EXPECT_THAT(message_of<Error>([] { spawn(1, [](Worker&) {}); }),
              AllOf(HasSubstr("[spawn]"), HasSubstr("1 thread"), HasSubstr("spawn_threads")));
  EXPECT_EQ(spawns_in_a_child(), 1) << "what the thread was at is half done in a child that has no thread";
  done = true;
  other.join();
  EXPECT_EQ(spawns_in_a_child(), 0);
  EXPECT_NO_THROW(spawn(1, [](Worker&) {}));
}

}  // namespace
}  // namespace farad::test
