// `farad run` at a terminal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* ctrl_c = "\x03";

TEST(RunTerminal, LinesHaveTheirRankInColour) {
  Command command(run_script(2, "echo hi"), {.terminal = true});
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(command.out(), HasSubstr("\x1b[31m[0]\x1b[0m hi"));
  EXPECT_THAT(command.out(), HasSubstr("\x1b[32m[1]\x1b[0m hi"));
}

TEST(RunTerminal, NoColorIsRespected) {
  Command command(run_script(1, "echo hi"), {.environment = {{"NO_COLOR", "1"}}, .terminal = true});
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(command.out(), HasSubstr("[0] hi"));
  EXPECT_THAT(command.out(), Not(HasSubstr("\x1b")));
}

TEST(RunTerminal, TagsCanBeTurnedOff) {
  Command command(run_script(1, "echo hi", {"--no-tag-output"}), {.terminal = true});
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(command.out(), "hi\r\n");
}

TEST(RunTerminal, PromptIsShownAndAnswered) {
  Command command(run_script(2, "test $RANK = 0 || exit 0; printf 'name? '; read name; echo hello $name"),
                  {.terminal = true});
  ASSERT_TRUE(command.wait_for("name? "));
  command.type("ada\n");
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(command.out(), HasSubstr("hello ada"));
}

TEST(RunTerminal, CtrlCReachesEveryWorker) {
  Command command(run_worker(3, "catch"), {.terminal = true});
  ASSERT_TRUE(command.wait_for("ready", 3));
  command.type(ctrl_c);
  EXPECT_EQ(command.finish(), 128 + SIGINT);
  EXPECT_EQ(count_of(command.out(), "caught SIGINT"), 3) << command.out();
  EXPECT_TRUE(command.everything_ended());
}

}  // namespace
}  // namespace farad::test
