// Processes that train one model in shared memory, and what becomes of its name.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "process/nursery.h"
#include "shared/broker.h"
#include "shared/segment.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using shared::Model;
using shared::Policy;
using torch::nn::Linear;

constexpr int64_t width = 100;  // 40 KB, so that an update takes a while.

struct Plan {
  char name[64] = {};
  int steps = 0;       ///< 0 = until it is killed
  bool stays = false;  ///< after them, and does nothing
  bool creates = false;
  Policy policy = Policy::Locked;
};

Linear zeroed() {
  Linear module(width, width);
  for (auto& parameter : module->parameters()) parameter.detach().zero_();
  return module;
}

/// Adds one to each element, over and over. Sums of small integers are exact, so what was lost can be counted.
void train(const Plan& plan) {
  auto module = zeroed();
  auto model = plan.creates ? Model::create(plan.name, module, torch::optim::SGDOptions(1), {plan.policy})
                            : Model::attach(plan.name, module);
  const std::vector<at::Tensor> gradients{at::full({width, width}, -1.0), at::full({width}, -1.0)};
  for (int i = 0; plan.steps == 0 || i < plan.steps; ++i) model.step(gradients);
  while (plan.stays) ::pause();
  ::_exit(0);
}

/// Is killed while it writes down a gradient.
void die_writing(const Plan& plan) {
  auto module = zeroed();
  auto model = Model::attach(plan.name, module);
  std::shared_ptr<shared::Segment> segment;
  std::unique_ptr<shared::Broker> broker;
  shared::Broker::fetch(plan.name, base::Clock::now() + 10s, segment, broker).raise();
  const auto seat = static_cast<size_t>(model.worker());
  segment->header().seats[seat].begun.fetch_add(1);
  segment->header().slots[seat][0].state.store(shared::SlotState::Filling);
  ::raise(SIGKILL);
}

void manage(const Plan& plan) {
  auto module = zeroed();
  auto model = Model::attach(plan.name, module);
  while (true) (void)model.manage(100ms);
}

class SharedProcess : public testing::Test {
 protected:
  Plan plan(const char* test) {
    Plan plan;
    ("test-" + std::to_string(::getpid()) + "-" + test).copy(plan.name, sizeof plan.name - 1);
    return plan;
  }
  /// False if it does not come about.
  static bool wait_until(const std::function<bool()>& holds) {
    for (const auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
      if (holds()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  static bool all_are(const Model::Snapshot& snapshot, uint64_t value) {
    for (const auto& [name, tensor] : snapshot.tensors) {
      if (!at::all(tensor == static_cast<double>(value)).item<bool>()) return false;
    }
    return true;
  }
};

TEST_F(SharedProcess, HogwildCountsEachUpdateWhateverItsElementsLose) {
  auto how = plan("hogwild");
  how.policy = Policy::Hogwild;
  how.steps = 500;
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1), {how.policy});
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(Nursery::bear<train>(how));
  for (const pid_t worker : workers) EXPECT_EQ(Nursery::bury(worker), 0);
  const auto stats = model.stats();
  EXPECT_EQ(stats.version, 1'500u);
  EXPECT_EQ(stats.cut_off, 0u);
  EXPECT_EQ(stats.rejected + stats.lost + stats.waiting, 0u);
  // Who ends may leave its seat to one that comes later, so they need not sit on three.
  uint64_t begun = 0, applied = 0;
  for (const auto& worker : stats.workers) {
    EXPECT_EQ(worker.applied % static_cast<uint64_t>(how.steps), 0u) << "worker " << worker.worker;
    EXPECT_EQ(worker.applied, worker.begun) << "worker " << worker.worker;
    begun += worker.begun;
    applied += worker.applied;
  }
  EXPECT_EQ(begun, 1'500u);
  EXPECT_EQ(applied, 1'500u);
  EXPECT_LE(model.snapshot().tensors[0].second.max().item<float>(), 1'500.0f);
}

TEST_F(SharedProcess, WhoWantsTheLockGetsItBesideThoseWhoAlwaysDo) {
  auto how = plan("beside");
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1));
  const pid_t greedy[] = {Nursery::bear<train>(how), Nursery::bear<train>(how)};
  ASSERT_TRUE(wait_until([&] { return model.version() > 100; }));
  how.steps = 100;
  EXPECT_EQ(Nursery::bury(Nursery::bear<train>(how)), 0)
      << "it gives up if it does not get the lock within its patience";
  for (const pid_t one : greedy) Nursery::kill(one);
  const auto snapshot = model.snapshot();
  EXPECT_TRUE(all_are(snapshot, snapshot.version));
}

/// Is one of many: more than a model has seats for.
void read(const Plan& plan) {
  auto module = zeroed(), mine = zeroed();
  auto model = Model::attach(plan.name, module, {.patience = 60s, .read_only = true});
  for (uint64_t version = 0; version < static_cast<uint64_t>(plan.steps);) {
    version = model.pull(mine);
    if (!at::all(mine->weight == static_cast<double>(version)).item<bool>()) ::_exit(1);
    std::this_thread::yield();
  }
  ::_exit(model.worker() == -1 ? 0 : 2);
}

TEST_F(SharedProcess, MoreReadersThanThereAreSeatsSeeEachVersionAsAWhole) {
  auto how = plan("readers");
  how.steps = 30;
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1));
  std::vector<pid_t> readers;
  for (size_t i = 0; i <= shared::most_workers; ++i) readers.push_back(Nursery::bear<read>(how));
  const pid_t trainer = Nursery::bear<train>(how);
  for (const pid_t one : readers) EXPECT_EQ(Nursery::bury(one), 0);
  EXPECT_EQ(Nursery::bury(trainer), 0) << "there is a seat for it";
  EXPECT_EQ(model.stats().workers.size(), 2u);
}

TEST_F(SharedProcess, TheNameOutlivesItsCreatorAndEndsWithTheLastHolder) {
  auto creator = plan("name");
  creator.creates = true;
  auto holder = creator;
  holder.creates = false;
  const pid_t first = Nursery::bear<train>(creator);
  const pid_t second = Nursery::bear<train>(holder);
  {
    auto module = zeroed();
    auto model = Model::attach(creator.name, module);
    ASSERT_TRUE(wait_until([&] { return model.stats().workers.size() == 3; }));
    model.detach();
  }
  Nursery::kill(first);
  {
    auto module = zeroed();
    auto model = Model::attach(creator.name, module);
    const auto snapshot = model.snapshot();
    EXPECT_TRUE(all_are(snapshot, snapshot.version));
  }
  Nursery::kill(second);
  auto module = zeroed();
  EXPECT_THROW(Model::attach(creator.name, module, {.patience = 50ms}), Timeout);
}

/// Everything on this machine that has the name in it: files in shared memory, sockets, and descriptors and mappings of
/// processes.
std::vector<std::string> traces_of(const std::string& name) {
  namespace fs = std::filesystem;
  constexpr auto skip = fs::directory_options::skip_permission_denied;
  std::vector<std::string> found;
  std::error_code gone;  // Processes of others come and go while we look.
  const auto look_into = [&](const fs::path& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(name) != std::string::npos) found.push_back(file.string() + ": " + line);
    }
  };
  for (const auto& file : fs::directory_iterator("/dev/shm", skip)) {
    if (file.path().string().find(name) != std::string::npos) found.push_back(file.path());
  }
  look_into("/proc/net/unix");
  for (const auto& process : fs::directory_iterator("/proc", skip)) {
    if (!std::isdigit(static_cast<unsigned char>(process.path().filename().string().front()))) continue;
    look_into(process.path() / "maps");
    for (fs::directory_iterator fd(process.path() / "fd", skip, gone), end; !gone && fd != end; fd.increment(gone)) {
      const auto target = fs::read_symlink(*fd, gone).string();
      if (target.find(name) != std::string::npos) found.push_back(fd->path().string() + ": " + target);
      gone.clear();
    }
  }
  return found;
}

TEST_F(SharedProcess, OfHoldersThatAreAllKilledAtOnceNothingIsLeft) {
  for (const bool none_can_take_over : {true, false}) {
    auto creator = plan("all");
    creator.creates = true;
    auto holder = creator;
    holder.creates = false;
    const std::vector<pid_t> holders{Nursery::bear<train>(creator), Nursery::bear<train>(holder),
                                     Nursery::bear<train>(holder)};
    {
      auto module = zeroed();
      auto model = Model::attach(creator.name, module);
      ASSERT_TRUE(wait_until([&] { return model.stats().workers.size() == 4 && model.version() > 10; }));
      EXPECT_THAT(traces_of(creator.name), testing::Not(testing::IsEmpty())) << "this would find nothing anyway";
    }
    for (const pid_t one : holders) {
      if (none_can_take_over) ::kill(one, SIGSTOP);
    }
    for (const pid_t one : holders) ::kill(one, SIGKILL);
    for (const pid_t one : holders) EXPECT_TRUE(WIFSIGNALED(Nursery::bury(one)));
    EXPECT_THAT(traces_of(creator.name), testing::IsEmpty());

    auto module = zeroed(), other = zeroed();
    auto model = Model::create(creator.name, module, torch::optim::SGDOptions(1));
    EXPECT_EQ(Model::attach(creator.name, other).version(), 0u) << "the name is free, and what it was is forgotten";
  }
}

TEST_F(SharedProcess, OfARoundWhoseMemberIsKilledTheOthersAreToldAndNothingIsChanged) {
  auto how = plan("round");
  how.steps = 3;
  how.stays = true;
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1),
                             {.policy = Policy::AllReduced, .patience = 30s, .members = 2});
  const pid_t member = Nursery::bear<train>(how);
  const std::vector<at::Tensor> gradients{at::full({width, width}, -1.0), at::full({width}, -1.0)};
  for (int round = 0; round < how.steps; ++round) model.step(gradients);
  Nursery::kill(member);
  try {
    model.step(gradients);
    ADD_FAILURE() << "a round without one of its members";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what_without_backtrace(), testing::HasSubstr("worker 1 (process " + std::to_string(member)));
  }
  EXPECT_TRUE(all_are(model.snapshot(), 3));
  EXPECT_EQ(model.step(gradients).version, 4u) << "those that are left go on";
  EXPECT_TRUE(all_are(model.snapshot(), 4));
  EXPECT_EQ(model.stats().members_lost, 1u);
  EXPECT_EQ(model.stats().rejected, 1u);
}

TEST_F(SharedProcess, AGradientThatAKilledWorkerHasHalfWrittenIsDiscardedAndCounted) {
  auto how = plan("half");
  auto module = zeroed(), other = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1), {.policy = Policy::Managed});
  EXPECT_TRUE(WIFSIGNALED(Nursery::bury(Nursery::bear<die_writing>(how))));
  EXPECT_EQ(model.stats().discarded, 1u);
  EXPECT_EQ(model.stats().lost, 1u);
  EXPECT_EQ(model.manage(0ms), 0u);
  auto next = Model::attach(how.name, other);
  next.step({at::full({width, width}, -1.0), at::full({width}, -1.0)});
  EXPECT_EQ(model.manage(10s), 1u);
  EXPECT_EQ(next.worker(), 1) << "it sits where the dead one sat";
  EXPECT_TRUE(all_are(model.snapshot(), 1));
  EXPECT_EQ(model.stats().discarded, 1u);
}

TEST_F(SharedProcess, AManagerThatIsKilledIsReplacedAndCounted) {
  const auto how = plan("manager");
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1), {.policy = Policy::Managed});
  const pid_t manager = Nursery::bear<manage>(how);
  const std::vector<at::Tensor> gradients{at::full({width, width}, -1.0), at::full({width}, -1.0)};
  model.step(gradients);
  model.settle();
  EXPECT_EQ(model.version(), 1u);
  Nursery::kill(manager);
  for (int i = 0; i < 5; ++i) model.step(gradients);  // More than wait for a manager: who submits does its work.
  model.settle();
  EXPECT_TRUE(all_are(model.snapshot(), model.version()));
  EXPECT_EQ(model.stats().workers[0].applied, 6u);
  EXPECT_EQ(model.manage(0ms), 0u);
  EXPECT_EQ(model.stats().managers_lost, 1u);
}

/// Not a test, but what the next one starts: this program anew, as a worker that knows nothing but a name.
TEST_F(SharedProcess, DISABLED_StepsTheModelThatItIsTold) {
  const char* const name = ::getenv("SHARED_TEST_MODEL");
  if (!name) GTEST_SKIP() << "it is told of none";
  auto module = zeroed();
  auto model = Model::attach(name, module);
  model.step({at::full({width, width}, -1.0), at::full({width}, -1.0)});
}

TEST_F(SharedProcess, AProgramThatIsStartedAnewIsAWorkerToo) {
  const auto how = plan("started");
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1));
  const std::string name = std::string("SHARED_TEST_MODEL=") + how.name;
  std::vector<char*> environment{const_cast<char*>(name.c_str())};
  for (char** one = environ; *one; ++one) environment.push_back(*one);
  environment.push_back(nullptr);
  const char* words[] = {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                         "--gtest_filter=SharedProcess.DISABLED_StepsTheModelThatItIsTold", nullptr};
  pid_t child = -1;
  ASSERT_EQ(::posix_spawn(&child, words[0], nullptr, nullptr, const_cast<char**>(words), environment.data()), 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all_are(model.snapshot(), 1));
  EXPECT_EQ(model.history().at(0).worker, 1);
}

TEST_F(SharedProcess, AForkedChildIsAWorkerOfItsOwnAndKeepsTheName) {
  const auto how = plan("forked");
  auto module = zeroed();
  auto model = std::make_unique<Model>(Model::create(how.name, module, torch::optim::SGDOptions(1)));
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const auto update = model->step({at::full({width, width}, -1.0), at::full({width}, -1.0)});
      char byte = 0;
      (void)!::read(go[0], &byte, 1);
      ::_exit(update.version == 1 && update.worker == 1 ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  ASSERT_TRUE(wait_until([&] { return model->version() == 1; }));
  EXPECT_TRUE(all_are(model->snapshot(), 1));
  model.reset();
  auto later = zeroed();
  EXPECT_EQ(Model::attach(how.name, later).version(), 1u) << "the child offers it now";
  EXPECT_EQ(::write(go[1], "x", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace farad::test
