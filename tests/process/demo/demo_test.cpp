// The demo as its users see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "demo/curves.h"
#include "demo/files.h"
#include "process/command/command.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class DemoTest : public testing::Test {
 protected:
  std::vector<std::string> demo(std::vector<std::string> options) const {
    options.insert(options.begin(), {FARAD_DEMO, "--out", directory_.path()});
    return options;
  }
  bool wrote(const std::string& name) const { return fs::exists(directory_.file(name)); }
  std::string read(const std::string& name) const { return farad::demo::read_file(directory_.file(name)).value_or(""); }
  /// The number that follows `words`; -1 if there is none.
  static double number_after(const std::string& text, const std::string& words) {
    const auto place = text.find(words);
    return place == text.npos ? -1 : std::strtod(text.c_str() + place + words.size(), nullptr);
  }
  /// What is between; empty if one of them is not there.
  static std::string part_of(const std::string& text, const std::string& from, const std::string& to) {
    const auto first = text.find(from), last = text.find(to);
    if (first == text.npos || last == text.npos || last < first) return {};
    return text.substr(first + from.size(), last - first - from.size());
  }
  /// The processes that `parent` has started, in order.
  static std::vector<pid_t> children_of(pid_t parent) {
    const auto id = std::to_string(parent);
    std::ifstream in("/proc/" + id + "/task/" + id + "/children");
    std::vector<pid_t> children;
    for (pid_t child; in >> child;) children.push_back(child);
    return children;
  }

  const TemporaryDirectory directory_;
};

TEST_F(DemoTest, ShowsCurvesCostsAndASampleAndNamesItsFiles) {
  Command command(demo({"--steps", "2", "--workers", "2"}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  EXPECT_THAT(
      command.out(),
      testing::AllOf(HasSubstr("step   2 of 2"), HasSubstr("largest difference"), HasSubstr("What distribution costs"),
                     HasSubstr("The people of the workshop"), HasSubstr(directory_.file("loss.csv"))));
  for (const auto* what : {"pipeline   ", "one process"}) {
    const auto line = std::string(what) + ": step   1 of 2, loss [0-9.]+, +[1-9][0-9]* tokens/s, 1 steps left";
    EXPECT_THAT(command.out(), testing::ContainsRegex(line));
  }
  EXPECT_THAT(command.out(), testing::ContainsRegex("2 processes +[0-9.]+ ms +[0-9.]+ ms: [0-9.]+ times the time"));
  // Both learn alike, so every mark of the drawing is of both.
  const auto drawing = part_of(command.out(), "#: both):", "largest difference");
  EXPECT_EQ(std::count(drawing.begin(), drawing.end(), '#'), 72) << drawing;
  EXPECT_EQ(std::count(drawing.begin(), drawing.end(), 'p'), 0) << drawing;
  for (const auto* name : {"loss.csv", "loss.svg", "sample.txt", "checkpoints-seed1/step2/manifest.json"})
    EXPECT_TRUE(wrote(name)) << name;
  EXPECT_TRUE(command.everything_ended());
  const double difference = number_after(command.out(), "largest difference of the two at any step: ");
  EXPECT_GE(difference, 0);
  EXPECT_LT(difference, 1e-4);
  const auto curves = farad::demo::from_csv(read("loss.csv"));
  EXPECT_EQ(curves.pipeline.size(), 2u);
  EXPECT_EQ(curves.one_process.size(), 2u);
}

TEST_F(DemoTest, ResumeTakesTheStepsOfTheRunAndRefusesOthers) {
  Command command(demo({"--steps", "2", "--workers", "2"}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  const auto losses = read("loss.csv");

  Command longer(demo({"--steps", "3", "--workers", "2", "--resume"}));
  EXPECT_EQ(longer.finish(), 1);
  EXPECT_THAT(longer.err(), HasSubstr("was begun with --steps 2, not 3"));
  Command other_batches(demo({"--workers", "2", "--schedule", "interleaved", "--resume"}));
  EXPECT_EQ(other_batches.finish(), 1);
  EXPECT_THAT(other_batches.err(), HasSubstr("was begun with 18 passages per step"));

  // It has nothing left to do but the other half, which does not depend on what was before.
  Command again(demo({"--workers", "2", "--resume"}));
  EXPECT_EQ(again.finish(), 0) << again.err();
  EXPECT_THAT(again.out(), testing::AllOf(HasSubstr("goes on after step 2"), HasSubstr("one process: step   2 of 2"),
                                          HasSubstr("2 processes: not measured")));
  EXPECT_EQ(read("loss.csv"), losses);
}

TEST_F(DemoTest, SeedDecidesTheRun) {
  std::vector<std::string> losses;
  for (const auto* seed : {"1", "1", "2"}) {
    Command command(demo({"--steps", "1", "--workers", "1", "--seed", seed}));
    EXPECT_EQ(command.finish(), 0) << command.err();
    losses.push_back(read("loss.csv"));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

TEST_F(DemoTest, CtrlCSavesAndLeavesNobodyAndResumeGoesOn) {
  Command command(demo({"--steps", "5000"}), {.terminal = true});
  ASSERT_TRUE(command.wait_for("step   1 of 5000")) << command.out();
  command.type("\x03");
  EXPECT_EQ(command.finish(), 130) << command.out();
  EXPECT_THAT(command.out(), testing::AllOf(HasSubstr("The last checkpoint is"), HasSubstr("--resume")));
  EXPECT_TRUE(command.everything_ended());

  const auto saved = static_cast<int64_t>(number_after(command.out(), ", after step "));
  ASSERT_GE(saved, 1) << command.out();
  Command again(demo({"--resume"}), {.terminal = true});
  EXPECT_TRUE(again.wait_for("goes on after step " + std::to_string(saved) + ",")) << again.out();
  EXPECT_TRUE(again.wait_for("of 5000")) << again.out();
  EXPECT_EQ(number_after(again.out(), "pipeline   : step "), saved + 1) << again.out();
  again.type("\x03");
  EXPECT_EQ(again.finish(), 130) << again.out();
}

TEST_F(DemoTest, WorkerThatIsKilledIsNamedWithTheLastCheckpoint) {
  Command command(demo({"--steps", "60"}));
  ASSERT_TRUE(command.wait_for("step  24 of 60")) << command.err();  // A checkpoint after every fifth part is there.
  const auto workers = children_of(command.pid());
  ASSERT_EQ(workers.size(), 3);
  ::kill(workers[2], SIGKILL);
  EXPECT_EQ(command.finish(), 1);
  EXPECT_THAT(command.err(), testing::AllOf(HasSubstr("worker2 was ended by Killed"),
                                            HasSubstr("The last checkpoint is"), HasSubstr("--resume")));
  EXPECT_TRUE(command.everything_ended());
}

TEST_F(DemoTest, ResumeWithoutACheckpointSaysWhereItLooked) {
  Command command(demo({"--resume", "--seed", "7"}));
  EXPECT_EQ(command.finish(), 1);
  EXPECT_THAT(command.err(), HasSubstr("no checkpoint in " + directory_.file("checkpoints-seed7")));
}

TEST_F(DemoTest, WrongOptionsAreNamed) {
  Command workers(demo({"--workers", "many"})), unknown(demo({"--wrkers", "3"})), help(demo({"--help"}));
  EXPECT_EQ(workers.finish(), 1);
  EXPECT_THAT(workers.err(), HasSubstr("--workers many: a number from 1 to 6"));
  EXPECT_EQ(unknown.finish(), 1);
  EXPECT_THAT(unknown.err(), HasSubstr("there is no option \"--wrkers\""));
  EXPECT_EQ(help.finish(), 0);
  EXPECT_THAT(help.out(), HasSubstr("--resume"));
}

}  // namespace
}  // namespace farad::test
