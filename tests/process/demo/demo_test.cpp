// The demo as its users see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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
  for (const auto* name : {"loss.csv", "loss.svg", "sample.txt", "checkpoints-seed1/step2/manifest.json"})
    EXPECT_TRUE(wrote(name)) << name;
  EXPECT_TRUE(command.everything_ended());
}

TEST_F(DemoTest, CtrlCSavesAndLeavesNobodyAndResumeGoesOn) {
  Command command(demo({"--steps", "5000"}), {.terminal = true});
  ASSERT_TRUE(command.wait_for("step   1 of 5000")) << command.out();
  command.type("\x03");
  EXPECT_EQ(command.finish(), 130) << command.out();
  EXPECT_THAT(command.out(), testing::AllOf(HasSubstr("The last checkpoint is"), HasSubstr("--resume")));
  EXPECT_TRUE(command.everything_ended());

  Command again(demo({"--steps", "5000", "--resume"}), {.terminal = true});
  EXPECT_TRUE(again.wait_for("goes on after step")) << again.out();
  EXPECT_TRUE(again.wait_for("of 5000")) << again.out();
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
