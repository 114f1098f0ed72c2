#include "shm/lifeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "shm/memory.h"

namespace farad::shm {
namespace {

/// A child that holds a lifeline until it is told to end, one way or another.
class Holder {
 public:
  Holder() {
    Memory::create("test", 4096, memory_).raise();
    line_ = new (memory_.data()) Lifeline;
    line_->prepare();
    int ready[2], quit[2];
    if (::pipe(ready) != 0 || ::pipe(quit) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      if (!line_->hold().ok()) ::_exit(1);
      char byte = 'x';
      if (::write(ready[1], &byte, 1) != 1 || ::read(quit[0], &byte, 1) != 1) ::_exit(1);
      line_->release();
      ::_exit(0);
    }
    char byte;
    if (::read(ready[0], &byte, 1) != 1) std::abort();
    for (int fd : {ready[0], ready[1], quit[0]}) ::close(fd);
    quit_ = quit[1];
  }
  ~Holder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(quit_);
  }
  void kill() { ::kill(child_, SIGKILL); }
  void release() {
    if (::write(quit_, "x", 1) != 1) std::abort();
  }
  Lifeline& line() { return *line_; }

 private:
  Memory memory_;
  Lifeline* line_;
  pid_t child_;
  int quit_;
};

base::TimePoint in_seconds(int n) { return base::Clock::now() + std::chrono::seconds(n); }

TEST(Lifeline, BreaksWhenItsHolderIsKilled) {
  Holder holder;
  EXPECT_FALSE(holder.line().broken());
  std::atomic<uint32_t> doorbell{0};
  Lifeline* const lines[] = {&holder.line()};
  holder.kill();
  const auto deadline = in_seconds(10);
  while (!holder.line().broken() && base::Clock::now() < deadline) {
    Lifeline::wait_for_any(lines, doorbell, 0, deadline);
  }
  EXPECT_TRUE(holder.line().broken());
}

TEST(Lifeline, AReleaseIsNoBreak) {
  Holder holder;
  std::atomic<uint32_t> doorbell{0};
  Lifeline* const lines[] = {&holder.line()};
  holder.release();
  Lifeline::wait_for_any(lines, doorbell, 0, in_seconds(10));
  EXPECT_FALSE(holder.line().broken());
}

TEST(Lifeline, TheDoorbellAndTheDeadlineEndTheWait) {
  Holder holder;
  std::atomic<uint32_t> doorbell{1};
  Lifeline* const lines[] = {&holder.line()};
  Lifeline::wait_for_any(lines, doorbell, 0, base::never);
  Lifeline::wait_for_any(lines, doorbell, 1, base::Clock::now());
  EXPECT_FALSE(holder.line().broken());
}

TEST(Lifeline, OneBrokenAmongManyIsNoticed) {
  Holder holders[5];
  std::vector<Lifeline*> lines;
  for (auto& holder : holders) lines.push_back(&holder.line());
  std::atomic<uint32_t> doorbell{0};
  holders[3].kill();
  const auto deadline = in_seconds(10);
  while (!lines[3]->broken() && base::Clock::now() < deadline) {
    Lifeline::wait_for_any(lines, doorbell, 0, deadline);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(lines[i]->broken(), i == 3);
}

}  // namespace
}  // namespace farad::shm
