// How a job ends: which code, what is said, and that nothing is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(RunFailure, FailingWorkerStopsTheOthersAndGivesItsCode) {
  Command command(run_script(3, "test $RANK = 1 && exit 7; exec sleep 1000"));
  EXPECT_EQ(command.finish(), 7);
  EXPECT_THAT(command.err(), HasSubstr("[run] rank 1 (pid "));
  EXPECT_THAT(command.err(), HasSubstr("failed first: exit code 7; stopping the other 2"));
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, SignalledWorkerIsNamedWithItsSignal) {
  Command command(run_script(2, "test $RANK = 0 && kill -SEGV $$; exec sleep 1000"));
  EXPECT_EQ(command.finish(), 128 + SIGSEGV);
  EXPECT_THAT(command.err(), HasSubstr("rank 0 (pid "));
  EXPECT_THAT(command.err(), HasSubstr("failed first: killed by SIGSEGV (Segmentation fault)"));
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, OnlyTheFirstFailureIsTold) {
  Command command(run_script(4, "exit 5"));
  EXPECT_EQ(command.finish(), 5);
  EXPECT_EQ(count_of(command.err(), "failed first"), 1);
}

TEST(RunFailure, SuccessIsSilentAndZero) {
  Command command(run_script(4, "exit 0"));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_THAT(command.err(), IsEmpty());
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, WorkerThatIsDoneStopsNobody) {
  const auto fifo = std::filesystem::path(::testing::TempDir()) / ("farad-fifo-" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Command command(
      run_script(2, "if test $RANK = 0; then printf bye; else read word <" + fifo.string() + "; echo $word; fi"));
  std::fstream writer(fifo);  // For both, so that it need not wait for the reader.
  // A line without its end is passed on when its writer has ended.
  EXPECT_TRUE(command.wait_for("bye"));
  writer << "go\n" << std::flush;
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(command.out(), "byego\n");
  std::filesystem::remove(fifo);
}

class RunSignal : public ::testing::TestWithParam<int> {};

TEST_P(RunSignal, ReachesEveryWorker) {
  const std::string name = std::string("SIG") + ::sigabbrev_np(GetParam());
  Command command(run_worker(3, "catch"));
  ASSERT_TRUE(command.wait_for("ready\n", 3));
  command.signal(GetParam());
  EXPECT_EQ(command.finish(), 128 + GetParam());
  EXPECT_EQ(count_of(command.out(), "caught " + name + "\n"), 3) << command.out();
  EXPECT_TRUE(command.everything_ended());
}

TEST_P(RunSignal, WorkersThatIgnoreItAreKilledAfterTheGrace) {
  Command command(run_worker(2, "ignore", {"--grace", "0.1"}));
  ASSERT_TRUE(command.wait_for("ready\n", 2));
  command.signal(GetParam());
  EXPECT_EQ(command.finish(), 128 + GetParam());
  EXPECT_THAT(command.err(), HasSubstr("still running 0.1 s after they were asked to end; killing them"));
  EXPECT_TRUE(command.everything_ended());
}

INSTANTIATE_TEST_SUITE_P(Each, RunSignal, ::testing::Values(SIGINT, SIGTERM));

TEST(RunFailure, UserSignalReachesWorkersAndStopsNothing) {
  Command command(run_worker(2, "catch"));
  ASSERT_TRUE(command.wait_for("ready\n", 2));
  command.signal(SIGUSR1);
  EXPECT_EQ(command.finish(), 0);
  EXPECT_EQ(count_of(command.out(), "caught SIGUSR1"), 2);
}

TEST(RunFailure, TimeoutStopsTheJobWith124) {
  Command command(run_worker(2, "wait", {"--timeout", "0.2"}));
  EXPECT_EQ(command.finish(), 124);
  EXPECT_THAT(command.err(), HasSubstr("[run] 2 of 2 workers not done after 0.2 s (--timeout)"));
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, TimeoutDoesNotChangeAJobThatIsDoneBefore) {
  Command command(run_script(2, "exit 0", {"--timeout", "1000"}));
  EXPECT_EQ(command.finish(), 0);
}

TEST(RunFailure, DaemonsLeftByWorkersAreEnded) {
  Command command(run_worker(2, "leave-daemon", {"--grace", "0.1"}));
  EXPECT_EQ(command.finish(), 0);
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, KillOfTheLauncherEndsEverything) {
  Command command(run_worker(3, "daemon-and-wait"));
  ASSERT_TRUE(command.wait_for("ready\n", 3));
  command.signal(SIGKILL);
  EXPECT_EQ(command.finish(), 128 + SIGKILL);
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, KillOfTheKeeperEndsEverything) {
  Command command(run_worker(3, "daemon-and-wait"));
  ASSERT_TRUE(command.wait_for("ready\n", 3));
  const auto id = std::to_string(command.pid());
  pid_t keeper = 0;
  std::ifstream("/proc/" + id + "/task/" + id + "/children") >> keeper;
  ASSERT_GT(keeper, 0);
  ::kill(keeper, SIGKILL);
  EXPECT_EQ(command.finish(), 128 + SIGKILL);
  EXPECT_THAT(command.err(), HasSubstr("the process that watches the workers was killed by SIGKILL"));
  EXPECT_TRUE(command.everything_ended());
}

TEST(RunFailure, MissingProgramGives127) {
  Command command(farad_command({"run", "-n", "2", "/no/such/program"}));
  EXPECT_EQ(command.finish(), 127);
  EXPECT_THAT(command.err(), HasSubstr("[run] cannot run \"/no/such/program\": No such file or directory"));
}

TEST(RunFailure, FileThatIsNoProgramGives126) {
  Command command(farad_command({"run", "-n", "2", "/etc/passwd"}));
  EXPECT_EQ(command.finish(), 126);
  EXPECT_THAT(command.err(), HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace farad::test
