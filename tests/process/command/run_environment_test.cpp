// What `farad run` gives to the workers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <set>
#include <thread>

#include "arithmetic/arithmetic.h"
#include "memory/small_blocks.h"
#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> lines_from(int workers, const std::string& script, CommandOptions options = {}) {
  Command command(run_script(workers, script), std::move(options));
  EXPECT_EQ(command.finish(), 0) << command.err();
  return lines_of(command.out());
}

TEST(RunEnvironment, EachWorkerKnowsItsPlace) {
  EXPECT_THAT(lines_from(3, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR"),
              UnorderedElementsAre("0 0 3 3 127.0.0.1", "1 1 3 3 127.0.0.1", "2 2 3 3 127.0.0.1"));
}

TEST(RunEnvironment, AllWorkersMeetAtOnePort) {
  const auto ports = lines_from(3, "echo $MASTER_PORT");
  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(std::set(ports.begin(), ports.end()).size(), 1u);
  EXPECT_GT(std::stoi(ports[0]), 1023);
}

TEST(RunEnvironment, EachJobHasASecretOfItsOwn) {
  const auto secrets = lines_from(2, "echo $FARAD_SECRET");
  ASSERT_EQ(secrets.size(), 2u);
  EXPECT_THAT(secrets[0], MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(secrets[0].size(), 64u);
  EXPECT_EQ(secrets[0], secrets[1]);
  EXPECT_NE(secrets[0], lines_from(1, "echo $FARAD_SECRET")[0]);
}

TEST(RunEnvironment, SecretIsOnNoCommandLine) {
  // Any process of the machine may have line feeds in its arguments: they become blanks, so that all come in one line.
  const auto lines = lines_from(1, "echo $FARAD_SECRET; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0\\n' '  '");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("run -n 1")) << "the launcher's own command line was looked at";
  EXPECT_THAT(lines[1], Not(HasSubstr(lines[0])));
}

TEST(RunEnvironment, SecretOfTheUserStays) {
  EXPECT_THAT(lines_from(1, "echo $FARAD_SECRET", {.environment = {{"FARAD_SECRET", "mine"}}}),
              UnorderedElementsAre("mine"));
  EXPECT_THAT(
      lines_from(1, "echo \"$FARAD_SECRET_FILE ${FARAD_SECRET-none}\"", {.environment = {{"FARAD_SECRET_FILE", "/f"}}}),
      UnorderedElementsAre("/f none"));
}

TEST(RunEnvironment, WorkersShareTheCores) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_THAT(lines_from(1, "echo $OMP_NUM_THREADS"), UnorderedElementsAre(std::to_string(cores)));
  const auto many = lines_from(2 * cores, "echo $OMP_NUM_THREADS");
  EXPECT_EQ(std::count(many.begin(), many.end(), "1"), 2 * cores) << "at least one each";
  EXPECT_THAT(lines_from(1, "echo $OMP_NUM_THREADS", {.environment = {{"OMP_NUM_THREADS", "17"}}}),
              UnorderedElementsAre("17"));
}

TEST(RunEnvironment, MallocKeepsMoreSmallBlocksUnlessTheUserSaysHowItWorks) {
  const char* const script = "echo ${GLIBC_TUNABLES-none}";
  if (!::getenv(memory::malloc_variable)) {
    EXPECT_THAT(lines_from(1, script), UnorderedElementsAre(memory::many_small_blocks));
  }
  EXPECT_THAT(lines_from(1, script, {.environment = {{"GLIBC_TUNABLES", "glibc.malloc.check=0"}}}),
              UnorderedElementsAre("glibc.malloc.check=0"));
}

TEST(RunEnvironment, OpenBlasIsToldOfAProcessorThatItDoesNotKnow) {
  const char* const script = "echo ${OPENBLAS_CORETYPE-none}";
  EXPECT_THAT(lines_from(1, script, {.environment = {{"OPENBLAS_CORETYPE", "Nehalem"}}}),
              UnorderedElementsAre("Nehalem"));
  if (::getenv(arithmetic::kernels_variable)) GTEST_SKIP() << "it is set for this test as well";
  const auto better = arithmetic::better_kernels();
  EXPECT_THAT(lines_from(1, script), UnorderedElementsAre(better.empty() ? "none" : better));
  if (better.empty()) return;
  // What is chosen is what OpenBLAS then computes with, and whether it is better is for the doctor to measure.
  Command told(farad_command({"run", "-n", "1", FARAD_COMMAND, "doctor"}));
  EXPECT_EQ(told.finish(), 0) << told.err();
  if (told.out().find(", built in") != std::string::npos) GTEST_SKIP() << "this libtorch uses no OpenBLAS";
  EXPECT_THAT(told.out(), HasSubstr("OpenBLAS for " + better));
  Command untold(farad_command({"doctor"}));
  EXPECT_EQ(untold.finish(), 0) << untold.err();
  EXPECT_THAT(untold.out(), HasSubstr("set OPENBLAS_CORETYPE=" + better));
}

TEST(RunEnvironment, WhatBelongsToAnotherJobIsReplaced) {
  EXPECT_THAT(lines_from(1, "echo $RANK $WORLD_SIZE ${FARAD_NAME-none} ${TORCHELASTIC_USE_AGENT_STORE-none} $OTHER",
                         {.environment = {{"RANK", "7"},
                                          {"WORLD_SIZE", "9"},
                                          {"FARAD_NAME", "ada"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"OTHER", "kept"}}}),
              UnorderedElementsAre("0 1 none none kept"));
}

TEST(RunEnvironment, StandardInputGoesToRankZero) {
  EXPECT_THAT(lines_from(3, "echo $RANK $(cat)", {.input = "hello\nthere\n"}),
              UnorderedElementsAre("0 hello there", "1", "2"));
}

TEST(RunEnvironment, ArgumentsOfTheProgramAreItsOwn) {
  Command command(farad_command({"run", "-n", "1", "echo", "-n", "5", "--", "--timeout", "x"}));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(command.out(), "5 -- --timeout x");
}

TEST(RunEnvironment, WrongUseIsExplained) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"run", "-n", "2"},
                                                                     {"run", "-n", "0", "true"},
                                                                     {"run", "-n", "two", "true"},
                                                                     {"run", "true"},
                                                                     {"run", "--no-such", "-n", "1", "true"},
                                                                     {"run", "-n", "1", "--timeout", "-3", "true"},
                                                                     {"walk"},
                                                                     {}}) {
    Command command(farad_command(arguments));
    EXPECT_EQ(command.finish(), 2);
    EXPECT_THAT(command.err(), Not(IsEmpty()));
  }
}

TEST(RunEnvironment, HelpAndVersionSucceed) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"--version"}, {"run", "--help"}, {"doctor", "--help"}}) {
    Command command(farad_command(arguments));
    EXPECT_EQ(command.finish(), 0);
    EXPECT_THAT(command.out(), Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace farad::test
