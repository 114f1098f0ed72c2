// What becomes of the workers' output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(RunOutput, IsTaggedWhenAsked) {
  Command command(run_script(3, "echo out; echo err >&2", {"--tag-output"}));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(lines_of(command.out()), UnorderedElementsAre("[0] out", "[1] out", "[2] out"));
  EXPECT_THAT(lines_of(command.err()), UnorderedElementsAre("[0] err", "[1] err", "[2] err"));
}

TEST(RunOutput, IsBareInAPipe) {
  Command command(run_script(2, "echo out"));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(command.out(), "out\nout\n");
}

TEST(RunOutput, TagsLineUp) {
  Command command(run_script(11, "echo x", {"--tag-output"}));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(count_of(command.out(), " [3] x\n"), 1);
  EXPECT_EQ(count_of(command.out(), "[10] x\n"), 1);
}

TEST(RunOutput, BinaryPassesUnchanged) {
  std::mt19937 random(7);
  std::string bytes(1'000'003, 0);
  for (auto& byte : bytes) byte = static_cast<char>(random());
  const auto path = std::filesystem::path(::testing::TempDir()) / ("farad-bytes-" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << bytes;
  Command command(run_script(1, "cat " + path.string()));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_TRUE(command.out() == bytes) << command.out().size() << " bytes";
  std::filesystem::remove(path);
}

TEST(RunOutput, LineOfAnyLengthHasOneTag) {
  Command command(run_script(1, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo y", {"--tag-output"}));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_TRUE(command.out() == "[0] " + std::string(300'000, 'x') + "\n[0] y\n");
}

TEST(RunOutput, LastLineWithoutEndIsShown) {
  Command bare(run_script(1, "printf 'a\\nb'"));
  EXPECT_EQ(bare.finish(), 0);
  EXPECT_EQ(bare.out(), "a\nb");
  Command tagged(run_script(1, "printf 'a\\nb'", {"--tag-output"}));
  EXPECT_EQ(tagged.finish(), 0);
  EXPECT_EQ(tagged.out(), "[0] a\n[0] b\n");
}

TEST(RunOutput, LinesOfSeveralWorkersDoNotMix) {
  Command command(
      run_script(3, "i=0; while test $i -lt 300; do printf ab$RANK; printf 'cd%s\\n' $RANK; i=$((i+1)); done"));
  EXPECT_EQ(command.finish(), 0);
  const auto lines = lines_of(command.out());
  EXPECT_EQ(lines.size(), 900u);
  for (const char* line : {"ab0cd0", "ab1cd1", "ab2cd2"}) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 300) << line;
  }
}

TEST(RunOutput, NothingIsLostWhenAWorkerFails) {
  Command command(run_script(2, "head -c 2000000 /dev/zero | tr '\\0' $RANK; exit $RANK"));
  EXPECT_EQ(command.finish(), 1);
  EXPECT_EQ(std::count(command.out().begin(), command.out().end(), '1'), 2'000'000);
}

TEST(RunOutput, ReaderWhoStopsDoesNotKeepTheLauncherFromItsSignals) {
  Command command(run_script(2, "exec yes"));
  ASSERT_TRUE(command.wait_for("y\n", 100'000));  // From here on nobody reads, until finish().
  command.signal(SIGTERM);
  EXPECT_EQ(command.finish(), 128 + SIGTERM);
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunOutput, ReaderWhoLeavesEndsTheJobAsInAnyPipeline) {
  Command command(run_script(2, "exec yes"));
  ASSERT_TRUE(command.wait_for("y\n", 10));
  command.close_out();
  EXPECT_EQ(command.finish(), 128 + SIGPIPE);
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunOutput, FullDiskIsTold) {
  Command command({"sh", "-c", FARAD_COMMAND " run -n 1 -- echo x >/dev/full"});
  EXPECT_EQ(command.finish(), 1);
  EXPECT_THAT(command.err(), HasSubstr("[run] cannot write the workers' output: No space left on device"));
}

}  // namespace
}  // namespace farad::test
