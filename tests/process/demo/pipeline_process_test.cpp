// kill -9 of a worker in the middle of a batch, and the way back: another group of workers loads the checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "demo/files.h"
#include "process/demo/small_training.h"
#include "process/nursery.h"
#include "process/rpc/member.h"
#include "temporary_directory.h"

namespace farad::demo {
namespace {

using namespace std::chrono_literals;
using test::MemberPlan;
using test::Nursery;

/// Rank 0 here, the others in processes of their own.
class ProcessGroup {
 public:
  ProcessGroup(int size, const std::string& directory) : children_(static_cast<size_t>(size)) {
    MemberPlan plan;
    plan.size = size;
    const std::string meeting = "file://" + directory + "/meeting";
    meeting.copy(plan.rendezvous, sizeof plan.rendezvous - 1);
    for (plan.rank = 1; plan.rank < size; plan.rank++)
      children_[static_cast<size_t>(plan.rank)] = Nursery::bear<test::be_a_member>(plan);
    WorkerOptions options;
    options.rank = 0;
    options.size = size;
    options.rendezvous = meeting;
    worker_.emplace(Worker::join(options));
  }
  ~ProcessGroup() {
    worker_.reset();
    for (size_t rank = 1; rank < children_.size(); rank++) kill(rank);
  }

  Worker& worker() { return *worker_; }
  void kill(size_t rank) {
    if (const pid_t child = std::exchange(children_[rank], 0)) Nursery::kill(child);
  }

 private:
  std::vector<pid_t> children_;
  std::optional<Worker> worker_;
};

/// Trains from `step` on, with a checkpoint after every second step; gives what went wrong.
std::string train(PipelineTraining& training, int64_t steps, const Checkpoints& checkpoints,
                  std::atomic<int64_t>& step) {
  try {
    while (step < steps) {
      training.step(step);
      if (++step % 2 == 0) checkpoints.save(step, [&](const std::string& into) { training.save(into); });
    }
    return "";
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
}

TEST(PipelineProcessTest, WorkerThatIsKilledIsNamedAndAResumedRunEndsAsIfNothingHadHappened) {
  const Text text(essay());
  auto options = small_training(text, PipelineSchedule::OneForwardOneBackward, {3, 1, 6});
  options.steps = 10;
  const test::TemporaryDirectory first, second, files;
  const Checkpoints checkpoints(files.path());
  {
    ProcessGroup group(3, first.path());
    PipelineTraining training(group.worker(), text, options);
    std::atomic<int64_t> step = 0;
    std::thread killer([&] {
      const auto patience = std::chrono::steady_clock::now() + 60s;
      while (step < 5 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
      group.kill(1);
    });
    // More steps than it will get to.
    const auto error = train(training, 1'000'000, checkpoints, step);
    killer.join();
    EXPECT_THAT(error, testing::ContainsRegex("worker ?1"));
  }
  const auto last = checkpoints.last();
  ASSERT_TRUE(last);
  ASSERT_GE(last->steps, 4);
  const int64_t end = std::max(options.steps, last->steps + 2);

  // Two workers instead of three, in which the same model has other stages.
  options.pipeline.shape.workers = 2;
  ProcessGroup group(2, second.path());
  PipelineTraining resumed(group.worker(), text, options);
  resumed.load(last->path);
  std::atomic<int64_t> step = last->steps;
  EXPECT_EQ(train(resumed, end, checkpoints, step), "");

  LocalTraining undisturbed(text, options);
  for (int64_t each = 0; each < end; each++) undisturbed.step(each);
  expect_close(resumed.parameters(), undisturbed.parameters());
}

}  // namespace
}  // namespace farad::demo
