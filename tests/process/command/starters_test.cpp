// WorkerOptions::from_environment under the real starters: what it finds, and that a group meets by it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

bool succeeds(const std::string& script) { return Command({"sh", "-c", script}).finish() == 0; }

std::string rendezvous_of(const std::string& line) { return line.substr(line.rfind(' ') + 1); }

bool has_mpirun() { return succeeds("mpirun --version >/dev/null 2>&1"); }

std::vector<std::string> mpirun(int workers, std::vector<std::string> rest) {
  std::vector<std::string> line{"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", std::to_string(workers)};
  line.insert(line.end(), rest.begin(), rest.end());
  return line;
}

/// What three of JOIN_AND_CALL write if they are one group.
const auto three_heard_each_other =
    UnorderedElementsAre("worker1 heard worker0", "worker2 heard worker1", "worker0 heard worker2");

TEST(Starters, FaradRun) {
  Command command(farad_command({"run", "-n", "3", PRINT_OPTIONS}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  EXPECT_THAT(lines_of(command.out()), UnorderedElementsAre(MatchesRegex("0 3 tcp://127.0.0.1:[0-9]+"),
                                                            MatchesRegex("1 3 tcp://127.0.0.1:[0-9]+"),
                                                            MatchesRegex("2 3 tcp://127.0.0.1:[0-9]+")));
}

TEST(Starters, Mpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun: apt install openmpi-bin";
  Command command(mpirun(3, {PRINT_OPTIONS}));
  ASSERT_EQ(command.finish(), 0) << command.err();
  const auto lines = lines_of(command.out());
  ASSERT_THAT(lines, UnorderedElementsAre(MatchesRegex("0 3 file:///.+"), MatchesRegex("1 3 file:///.+"),
                                          MatchesRegex("2 3 file:///.+")));
  EXPECT_EQ(rendezvous_of(lines[0]), rendezvous_of(lines[1]));
  EXPECT_EQ(rendezvous_of(lines[0]), rendezvous_of(lines[2]));
}

TEST(Starters, MpirunWithAMeetingPoint) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun: apt install openmpi-bin";
  Command command(mpirun(1, {"-x", "MASTER_ADDR=head", "-x", "MASTER_PORT=4711", PRINT_OPTIONS}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  EXPECT_EQ(command.out(), "0 1 tcp://head:4711\n");
}

TEST(Starters, GroupMeetsUnderFaradRun) {
  Command command(farad_command({"run", "-n", "3", JOIN_AND_CALL}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  EXPECT_THAT(lines_of(command.out()), three_heard_each_other);
}

TEST(Starters, GroupMeetsUnderMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun: apt install openmpi-bin";
  Command command(mpirun(3, {JOIN_AND_CALL}));
  EXPECT_EQ(command.finish(), 0) << command.err();
  EXPECT_THAT(lines_of(command.out()), three_heard_each_other);
}

TEST(Starters, GroupsUnderTwoMpirunsDoNotMeetEachOther) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun: apt install openmpi-bin";
  Command one(mpirun(3, {JOIN_AND_CALL}));
  Command other(mpirun(3, {JOIN_AND_CALL}));
  EXPECT_EQ(one.finish(), 0) << one.err();
  EXPECT_EQ(other.finish(), 0) << other.err();
  EXPECT_THAT(lines_of(one.out()), three_heard_each_other);
  EXPECT_THAT(lines_of(other.out()), three_heard_each_other);
}

TEST(Starters, Torchrun) {
  // Debian's torchrun 1.13 is there but cannot start anything with Debian's Python 3.11.
  if (!succeeds("torchrun --no_python --nproc_per_node 1 --standalone true >/dev/null 2>&1")) {
    GTEST_SKIP() << "no torchrun that can start a program";
  }
  Command command({"torchrun", "--no_python", "--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port",
                   "29617", PRINT_OPTIONS});
  ASSERT_EQ(command.finish(), 0) << command.err();
  // torchrun itself listens on its port, so the group meets on the next one.
  EXPECT_THAT(lines_of(command.out()), UnorderedElementsAre("0 2 tcp://127.0.0.1:29618", "1 2 tcp://127.0.0.1:29618"));
}

TEST(Starters, MalformedRankIsRefusedByName) {
  Command command({PRINT_OPTIONS}, {.environment = {{"RANK", "abc"}, {"WORLD_SIZE", "2"}}});
  EXPECT_EQ(command.finish(), 1);
  EXPECT_THAT(command.err(), HasSubstr("[environment] RANK=\"abc\": expected a whole number from 0 to 65534"));
}

}  // namespace
}  // namespace farad::test
