#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "temporary_directory.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

/// Under `farad run`, with so many workers.
Run with_owner(int workers, const std::vector<std::string>& options, const std::string& out) {
  std::vector<std::string> all{FARAD_COMMAND, "run", "-n", std::to_string(workers + 1), "--", FARAD_ACER, "--owner"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"--out", out});
  return farad::acer::run(std::move(all));
}

/// The files of the model that was saved, by name.
std::map<std::string, std::string> saved_model(const TemporaryDirectory& out) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(out.file("checkpoint/model"))) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    files[entry.path().filename()] = all.str();
  }
  return files;
}

// What they learn depends on who calls first; that it is right is shown below, by one worker, to the bit.
TEST(Owner, WorkersThatCallItTrainOneModel) {
  TemporaryDirectory directory;
  const auto done = with_owner(2,
                               {"--env", "Catch", "--steps", "9000", "--window", "9", "--evaluate-every", "3000",
                                "--evaluation-episodes", "100"},
                               directory.path());
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_THAT(done.said, HasSubstr("done after 9"));
  EXPECT_FALSE(column(directory.file("evaluations.csv"), "greedy_mean").empty());
  const auto last = [&](const char* name) { return column(directory.file("metrics.csv"), name).back(); };
  EXPECT_GT(last("staleness_mean"), 0) << "only one of them worked";
  EXPECT_LE(last("staleness_p99"), last("staleness_max"));
  EXPECT_LE(last("return_min"), last("return_mean"));
  EXPECT_LE(last("return_mean"), last("return_max"));
  const auto greedy = column(directory.file("evaluations.csv"), "greedy_mean");
  EXPECT_THAT(greedy, testing::Contains(last("evaluation_greedy")));
  EXPECT_LE(last("evaluation_version"), last("updates"));
}

TEST(Owner, WritesDownWhatItsWorkersFind) {
  TemporaryDirectory directory;
  const auto done = with_owner(2,
                               {"--env", "Catch", "--steps", "6000", "--window", "9", "--replay-start", "300",
                                "--evaluate-every", "2000", "--hidden", "16"},
                               directory.path());
  ASSERT_EQ(done.code, 0) << done.said;
  for (const char* name :
       {"policy_loss", "critic_loss", "entropy", "gradient_norm", "clipped_norm", "ratio_mean", "ratio_max",
        "explained_variance", "divergence", "bounded", "replay_fill", "replay_age", "length_mean"})
    EXPECT_FALSE(column(directory.file("metrics.csv"), name).empty()) << name << " is never known";
  EXPECT_GT(column(directory.file("metrics.csv"), "updates_off_policy").back(), 100);
  EXPECT_EQ(column(directory.file("metrics.csv"), "length_max").back(), 9);
  const auto workers = column(directory.file("workers.csv"), "worker");
  EXPECT_THAT(workers, testing::IsSupersetOf({0, 1}));
  for (const char* name : {"return_by_steps.svg", "return_by_seconds.svg", "staleness.svg"})
    EXPECT_TRUE(std::filesystem::exists(directory.file(name))) << name;
  const std::filesystem::directory_iterator files(directory.path());
  EXPECT_TRUE(std::any_of(begin(files), end(files), [](const auto& entry) {
    return entry.path().filename().string().starts_with("events.out.tfevents.");
  }));
}

TEST(Owner, OneWorkerThatCallsItLearnsToTheBitWhatOneInSharedMemoryDoes) {
  TemporaryDirectory by_calls, in_memory;
  const std::vector<std::string> options{"--env",  "Catch", "--steps",          "1500", "--replay-start", "200",
                                         "--seed", "7",     "--evaluate-every", "0"};
  const auto called = with_owner(1, options, by_calls.path());
  ASSERT_EQ(called.code, 0) << called.said;
  std::vector<std::string> alone{FARAD_ACER, "--workers", "1", "--out", in_memory.path()};
  alone.insert(alone.end(), options.begin(), options.end());
  const auto shared = run(std::move(alone));
  ASSERT_EQ(shared.code, 0) << shared.said;
  EXPECT_EQ(saved_model(by_calls), saved_model(in_memory));
  EXPECT_FALSE(saved_model(by_calls).empty());
  EXPECT_EQ(column(by_calls.file("evaluations.csv"), "sampled_mean"),
            column(in_memory.file("evaluations.csv"), "sampled_mean"));
}

TEST(Owner, SaysThatItNeedsAGroup) {
  TemporaryDirectory directory;
  const auto done = with_owner(0, {"--env", "Catch"}, directory.path());
  EXPECT_NE(done.code, 0);
  EXPECT_THAT(done.said, HasSubstr("--owner needs a group of two or more"));
}

/// One of three members that nobody looks after, as `farad run` would. With more options, and more of an environment.
std::vector<std::string> member(int rank, const char* steps, const TemporaryDirectory& out,
                                const std::vector<std::string>& options = {},
                                const std::vector<std::string>& variables = {}) {
  std::vector<std::string> words{"/usr/bin/env", "RANK=" + std::to_string(rank), "WORLD_SIZE=3",
                                 "FARAD_RENDEZVOUS=file://" + out.file("meeting")};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(),
               {FARAD_ACER, "--owner", "--env", "Catch", "--window", "9", "--steps", steps, "--report-every", "500",
                "--replay-start", "300", "--evaluate-every", "0", "--out", out.file("results")});
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

/// An owner and two workers that train until somebody ends them.
struct Endless {
  explicit Endless(const TemporaryDirectory& out)
      : owner(member(0, "100000000", out)), one(member(1, "100000000", out)), other(member(2, "100000000", out)) {}
  Program owner, one, other;
};

TEST(Owner, WhatIsLeftOfAGroupEndsWellWithoutAWorkerThatWasKilled) {
  TemporaryDirectory directory;
  Program owner(member(0, "9000", directory)), worker(member(1, "9000", directory)),
      killed(member(2, "9000", directory));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(killed.process(), SIGKILL);
  EXPECT_EQ(owner.wait(), 0) << owner.said();
  EXPECT_THAT(owner.said(), HasSubstr("a worker is lost, and the others go on"));
  EXPECT_THAT(owner.said(), HasSubstr("done after"));
  EXPECT_EQ(worker.wait(), 0) << worker.said();
  EXPECT_EQ(killed.wait(), 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(directory.file("results/checkpoint/model")));
}

TEST(Owner, EvaluatesItselfIfTheProcessThatDoesIsKilled) {
  TemporaryDirectory directory;
  Endless group(directory);
  auto& [owner, one, other] = group;
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  const auto children = owner.children();
  ASSERT_EQ(children.size(), 1);
  ::kill(children[0], SIGKILL);
  ASSERT_TRUE(owner.hear_anew("steps/s")) << owner.said();
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_EQ(column(directory.file("results/evaluations.csv"), "version").back(),
            column(directory.file("results/metrics.csv"), "updates").back());
}

TEST(Owner, WorkersFailIfTheOwnerIsKilled) {
  TemporaryDirectory directory;
  Endless group(directory);
  auto& [owner, one, other] = group;
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(owner.process(), SIGKILL);
  EXPECT_EQ(one.wait(), 1) << one.said();
  EXPECT_EQ(other.wait(), 1) << other.said();
}

TEST(Owner, CtrlCEndsItInGoodOrder) {
  TemporaryDirectory directory;
  Endless group(directory);
  auto& [owner, one, other] = group;
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_THAT(owner.said(), HasSubstr("stopped after"));
  EXPECT_EQ(one.wait(), 0) << one.said();
  EXPECT_EQ(other.wait(), 0) << other.said();
}

TEST(Owner, AWorkerThatIsStartedAgainTakesUpItsWork) {
  TemporaryDirectory directory;
  Program owner(member(0, "100000000", directory)), one(member(1, "100000000", directory)),
      killed(member(2, "100000000", directory));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(killed.process(), SIGKILL);
  ASSERT_TRUE(owner.hear("a worker is lost, and the others go on; it may be started again")) << owner.said();
  Program again(member(2, "100000000", directory));
  ASSERT_TRUE(owner.hear("rank 2 is there again, and takes up its work")) << owner.said();
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_EQ(one.wait(), 0) << one.said();
  EXPECT_EQ(again.wait(), 0) << again.said();
}

TEST(Owner, WhenAllAreLostItWaitsForOneToBeStartedAgain) {
  TemporaryDirectory directory;
  Endless group(directory);
  auto& [owner, one, other] = group;
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  for (auto* worker : {&one, &other}) ::kill(worker->process(), SIGKILL);
  Program again(member(1, "100000000", directory));
  ASSERT_TRUE(owner.hear("rank 1 is there again, and takes up its work")) << owner.said();
  ASSERT_TRUE(owner.hear_anew("steps/s")) << owner.said();
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_EQ(again.wait(), 0) << again.said();
}

TEST(Owner, ItEndsWithAnErrorIfAllAreLostForGood) {
  TemporaryDirectory directory;
  const std::vector<std::string> impatient{"--patience", "0.5"};
  Program owner(member(0, "100000000", directory, impatient)), one(member(1, "100000000", directory)),
      other(member(2, "100000000", directory));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  for (auto* worker : {&one, &other}) ::kill(worker->process(), SIGKILL);
  EXPECT_EQ(owner.wait(), 1);
  EXPECT_THAT(owner.said(), HasSubstr("no worker is left, and none was started again"));
}

TEST(Owner, AWorkerThatDoesNotHearThatItIsOverIsNamedAndLeftBehind) {
  TemporaryDirectory directory;
  // Silence does not count as loss, so that the call to the one that is stopped stays open.
  const std::vector<std::string> calm{"FARAD_LOST_AFTER_MS=0"}, impatient{"--patience", "0.5"};
  Program owner(member(0, "100000000", directory, impatient, calm)), one(member(1, "100000000", directory, {}, calm)),
      stopped(member(2, "100000000", directory, {}, calm));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(stopped.process(), SIGSTOP);
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_THAT(owner.said(), HasSubstr("ends without those who did not hear of it: rank 2"));
  EXPECT_THAT(owner.said(), HasSubstr("stopped after"));
  EXPECT_TRUE(std::filesystem::exists(directory.file("results/checkpoint/model")));
  EXPECT_EQ(one.wait(), 0) << one.said();
}

TEST(Owner, GoesOnFromItsCheckpointWhereItWas) {
  TemporaryDirectory directory;
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--env", "Catch", "--window", "9", "--replay-start", "200", "--seed", "7",
                               "--evaluate-every", "0", "--checkpoint-every", "400", "--report-every", "500"});
    return with_owner(1, more, directory.path());
  };
  const auto before = with({"--steps", "1000"});
  ASSERT_EQ(before.code, 0) << before.said;
  const double updates = column(directory.file("metrics.csv"), "updates").back();
  // As a run leaves them that has gone on and then was killed before it saved anything.
  for (const char* file : {"metrics.csv", "evaluations.csv"})
    std::ofstream(directory.file(file), std::ios::app) << "999999,999999,1,999999,1,1,1,1,1\n";
  const auto after = with({"--steps", "2000", "--resume"});
  ASSERT_EQ(after.code, 0) << after.said;
  EXPECT_THAT(after.said, HasSubstr("goes on after 10"));
  EXPECT_THAT(after.said, HasSubstr("done after 20"));
  const auto counted = column(directory.file("metrics.csv"), "updates");  // of both
  EXPECT_TRUE(std::is_sorted(counted.begin(), counted.end()));
  EXPECT_GT(counted.back(), updates + 100);
  for (const char* file : {"metrics.csv", "evaluations.csv"}) {
    const auto seconds = column(directory.file(file), "seconds");
    EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end())) << file;
    EXPECT_LT(seconds.back(), 999999) << file;
  }
  EXPECT_EQ(column(directory.file("evaluations.csv"), "greedy_mean").size(), 2) << "one at each end";
}

TEST(Owner, RefusesWhatItDecidesItself) {
  for (const std::string option : {"--workers", "--policy", "--replay-schedule"}) {
    const auto done = run({FARAD_ACER, "--owner", option, option == "--workers" ? "2" : "locked"});
    EXPECT_EQ(done.code, 1);
    EXPECT_THAT(done.said, HasSubstr(option + " does not go with --owner"));
  }
}

}  // namespace
}  // namespace farad::acer
