#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "program.h"
#include "temporary_directory.h"

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
  EXPECT_GT(column(directory.file("metrics.csv"), "staleness_mean").back(), 0) << "only one of them worked";
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

/// One of three members that nobody looks after, as `farad run` would.
std::vector<std::string> member(int rank, const char* steps, const TemporaryDirectory& out) {
  return {"/usr/bin/env",
          "RANK=" + std::to_string(rank),
          "WORLD_SIZE=3",
          "FARAD_RENDEZVOUS=file://" + out.file("meeting"),
          FARAD_ACER,
          "--owner",
          "--env",
          "Catch",
          "--window",
          "9",
          "--steps",
          steps,
          "--report-every",
          "500",
          "--replay-start",
          "300",
          "--evaluate-every",
          "0",
          "--out",
          out.file("results")};
}

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

TEST(Owner, WorkersFailIfTheOwnerIsKilled) {
  TemporaryDirectory directory;
  Program owner(member(0, "100000000", directory)), one(member(1, "100000000", directory)),
      other(member(2, "100000000", directory));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(owner.process(), SIGKILL);
  EXPECT_EQ(one.wait(), 1) << one.said();
  EXPECT_EQ(other.wait(), 1) << other.said();
}

TEST(Owner, CtrlCEndsItInGoodOrder) {
  TemporaryDirectory directory;
  Program owner(member(0, "100000000", directory)), one(member(1, "100000000", directory)),
      other(member(2, "100000000", directory));
  ASSERT_TRUE(owner.hear("steps/s")) << owner.said();
  ::kill(owner.process(), SIGINT);
  EXPECT_EQ(owner.wait(), 130) << owner.said();
  EXPECT_THAT(owner.said(), HasSubstr("stopped after"));
  EXPECT_EQ(one.wait(), 0) << one.said();
  EXPECT_EQ(other.wait(), 0) << other.said();
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
