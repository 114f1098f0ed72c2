// Workers on different machines: who talks to whom by what, and who does not get in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "process/command/command.h"
#include "process/machines/machines.h"

namespace farad::test {
namespace {

using testing::HasSubstr;

class MachinesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!machines_.trouble().empty()) GTEST_SKIP() << machines_.trouble();
  }

  /// The environment of one member; rank 0 is on the first machine.
  static CommandOptions member(int rank, int size, const std::string& secret) {
    return {{{"RANK", std::to_string(rank)},
             {"WORLD_SIZE", std::to_string(size)},
             {"MASTER_ADDR", Machines::first_address},
             {"MASTER_PORT", "29500"},  // Nobody else's: the machine is new.
             {"FARAD_JOIN_TIMEOUT_MS", "30000"},
             {"FARAD_SECRET", secret}}};
  }
  std::unique_ptr<Command> start_on_first(const CommandOptions& options) const {
    return std::make_unique<Command>(machines_.on_first({MACHINES_WORKER}), options);
  }
  std::unique_ptr<Command> start_on_second(const CommandOptions& options) const {
    return std::make_unique<Command>(machines_.on_second({MACHINES_WORKER}), options);
  }

  Machines machines_;
};

TEST_F(MachinesTest, WorkersTalkBySharedMemoryOnOneMachineAndByTcpBetweenTwo) {
  const auto worker0 = start_on_first(member(0, 3, "known to us"));
  const auto worker1 = start_on_first(member(1, 3, "known to us"));
  const auto worker2 = start_on_second(member(2, 3, "known to us"));

  EXPECT_EQ(worker0->finish(), 0) << worker0->err();
  EXPECT_EQ(worker1->finish(), 0) << worker1->err();
  EXPECT_EQ(worker2->finish(), 0) << worker2->err();
  EXPECT_EQ(worker0->out(), "worker0 to worker1: shm\nworker0 to worker2: tcp\n");
  EXPECT_EQ(worker1->out(), "worker1 to worker0: shm\nworker1 to worker2: tcp\n");
  EXPECT_EQ(worker2->out(), "worker2 to worker0: tcp\nworker2 to worker1: tcp\n");
}

TEST_F(MachinesTest, AddressTowardTheMeetingPlaceIsAnnouncedAndNotTheFirst) {
  const auto worker0 = start_on_first(member(0, 2, "known to us"));
  const auto worker1 = start_on_second(member(1, 2, "known to us"));

  EXPECT_EQ(worker0->finish(), 0) << worker0->err();
  EXPECT_EQ(worker1->finish(), 0) << worker1->err();
  EXPECT_THAT(worker0->err(), HasSubstr("worker0 is at " + std::string(Machines::first_address) + ":"));
  EXPECT_THAT(worker1->err(), HasSubstr("worker1 is at " + std::string(Machines::second_address) + ":"));
}

TEST_F(MachinesTest, AddressToBindIsAnnouncedWhereverTheMeetingPlaceIs) {
  auto options = member(0, 1, "known to us");
  options.environment["FARAD_BIND"] = Machines::private_address;
  const auto worker = start_on_first(options);

  EXPECT_EQ(worker->finish(), 0) << worker->err();
  EXPECT_THAT(worker->err(), HasSubstr("worker0 is at " + std::string(Machines::private_address) + ":"));
}

TEST_F(MachinesTest, StrangerWithAnotherSecretIsDroppedAndTheGroupIsNotDisturbed) {
  const auto worker0 = start_on_first(member(0, 2, "known to us"));

  const auto stranger = start_on_second(member(1, 2, "a guess"));
  EXPECT_EQ(stranger->finish(), 1);
  EXPECT_THAT(stranger->err(), HasSubstr("different secrets"));

  const auto worker1 = start_on_second(member(1, 2, "known to us"));
  EXPECT_EQ(worker0->finish(), 0) << worker0->err();
  EXPECT_EQ(worker1->finish(), 0) << worker1->err();
  EXPECT_THAT(worker0->err(), HasSubstr(Machines::second_address)) << "whom it dropped is logged";
  EXPECT_THAT(worker0->err(), HasSubstr("different secrets"));
}

TEST_F(MachinesTest, WithoutASecretNobodyTalksBeyondLoopback) {
  for (const int rank : {0, 1}) {
    const auto options = member(rank, 2, "");
    const auto worker = rank == 0 ? start_on_first(options) : start_on_second(options);
    EXPECT_EQ(worker->finish(), 1);
    EXPECT_THAT(worker->err(), HasSubstr(std::string(Machines::first_address) + ":29500"));
    EXPECT_THAT(worker->err(), HasSubstr("without a secret only loopback is allowed; set FARAD_SECRET"));
  }
}

}  // namespace
}  // namespace farad::test
