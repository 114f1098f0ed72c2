#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace farad::base {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Values = Environment::Values;

WorkerOptions completed(Values values, WorkerOptions options = {}) {
  complete(options, Environment::of(std::move(values))).raise();
  return options;
}

std::string complaint(Values values) {
  WorkerOptions options;
  const auto status = complete(options, Environment::of(std::move(values)));
  EXPECT_EQ(status.code(), Code::Invalid);
  EXPECT_EQ(options.rank, -1) << "touched although it failed";
  return status.message();
}

const Values of_torchrun{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.3"}, {"MASTER_PORT", "4711"}};
const Values of_mpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "3"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                       {"PMIX_SERVER_TMPDIR", "/tmp/ompi.host.0/pid.7"},
                       {"PMIX_NAMESPACE", "191371"}};
const Values of_srun{{"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "8"},
                     {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "gpu[07-12,20],login"},
                     {"SLURM_JOB_ID", "1000"},      {"SLURM_STEP_ID", "0"}};

Values with(Values values, const Values& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

TEST(Options, DefaultsAreThoseOfTheTable) {
  const WorkerOptions options;
  const auto nothing = Environment::of({});
  EXPECT_EQ(options.rpc_timeout, nothing.span(Var::RpcTimeout));
  EXPECT_EQ(options.join_timeout, nothing.span(Var::JoinTimeout));
  EXPECT_EQ(options.lost_after, nothing.span(Var::LostAfter));
  EXPECT_EQ(options.threads, nothing.number(Var::Threads));
}

TEST(Options, EmptyEnvironmentChangesNothing) {
  const auto options = completed({});
  EXPECT_EQ(options.rank, -1);
  EXPECT_EQ(options.size, -1);
  EXPECT_EQ(options.rendezvous, "");
}

TEST(Options, OwnVariablesFillEveryOtherField) {
  const auto options = completed({{"FARAD_NAME", "ada"},
                                  {"FARAD_TRANSPORT", "tcp"},
                                  {"FARAD_RENDEZVOUS", "file:///meet"},
                                  {"FARAD_RPC_TIMEOUT_MS", "0"},
                                  {"FARAD_JOIN_TIMEOUT_MS", "7"},
                                  {"FARAD_LOST_AFTER_MS", "250"},
                                  {"FARAD_THREADS", "6"}});
  EXPECT_EQ(options.name, "ada");
  EXPECT_EQ(options.transport, "tcp");
  EXPECT_EQ(options.rendezvous, "file:///meet");
  EXPECT_EQ(options.rpc_timeout, 0ms);
  EXPECT_EQ(options.join_timeout, 7ms);
  EXPECT_EQ(options.lost_after, 250ms);
  EXPECT_EQ(options.threads, 6);
}

TEST(Options, TorchrunIsUnderstood) {
  const auto options = completed(of_torchrun);
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.rendezvous, "tcp://10.0.0.3:4711");
}

TEST(Options, PortOfTorchrunsOwnStoreIsLeftToIt) {
  EXPECT_EQ(completed(with(of_torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).rendezvous, "tcp://10.0.0.3:4712");
  EXPECT_EQ(completed(with(of_torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).rendezvous,
            "tcp://10.0.0.3:4711");
}

TEST(Options, Ipv6HostIsBracketed) {
  EXPECT_EQ(completed({{"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "5"}}).rendezvous, "tcp://[fe80::1]:5");
  EXPECT_EQ(completed({{"MASTER_ADDR", "[::1]"}}).rendezvous, "tcp://[::1]:29500");
}

TEST(Options, MpirunOnOneMachineMeetsInItsOwnDirectory) {
  const auto options = completed(of_mpirun);
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.size, 3);
  EXPECT_EQ(options.rendezvous, "file:///tmp/ompi.host.0/pid.7/farad-191371");
}

TEST(Options, MpirunOnSeveralMachinesNeedsAMeetingPoint) {
  const auto options = completed(with(of_mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(options.rendezvous, "");
  EXPECT_THAT(check(options).message(), HasSubstr("mpirun: -x MASTER_ADDR"));
  EXPECT_EQ(completed(with(of_mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "a"}})).rendezvous,
            "tcp://a:29500");
}

TEST(Options, SlurmMeetsAtItsFirstMachine) {
  const auto options = completed(of_srun);
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.rendezvous, "tcp://gpu07:22000");
}

TEST(Options, SlurmThatSpeaksPmiMeetsThereToo) {
  const auto options = completed(with(of_srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}));
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.rendezvous, "tcp://gpu07:22000");
}

TEST(Options, SlurmHostListsOfAllShapes) {
  const auto host = [](const char* list) {
    const auto address = completed(with(of_srun, {{"SLURM_STEP_NODELIST", list}})).rendezvous;
    return address.substr(6, address.rfind(':') - 6);
  };
  EXPECT_EQ(host("node1"), "node1");
  EXPECT_EQ(host("node1,node2"), "node1");
  EXPECT_EQ(host("node[3,5]"), "node3");
  EXPECT_EQ(host("rack[1-2]-node,x"), "rack1-node");
  EXPECT_EQ(host("rack[1-2]node[3-4]"), "rack1node3");
  EXPECT_EQ(host("r[1,3]n[07-12,20]-a,login"), "r1n07-a");
  EXPECT_EQ(host("cut[1-2"), "cut1");
}

TEST(Options, SlurmOnOneMachineMeetsOnTheLoopback) {
  EXPECT_EQ(completed(with(of_srun, {{"SLURM_STEP_NUM_NODES", "1"}})).rendezvous, "tcp://127.0.0.1:22000");
}

TEST(Options, SlurmStepsOfOneJobDoNotMeet) {
  EXPECT_NE(completed(of_srun).rendezvous, completed(with(of_srun, {{"SLURM_STEP_ID", "1"}})).rendezvous);
}

TEST(Options, InnermostStarterWins) {
  auto all = with(with(of_torchrun, of_mpirun), of_srun);
  EXPECT_EQ(completed(all).rank, 1);
  EXPECT_EQ(completed(all).size, 4);
  all.erase("RANK");
  EXPECT_EQ(completed(all).rank, 2);
  EXPECT_EQ(completed(all).size, 3) << "rank and size come from the same starter";
  all.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(completed(all).rank, 5);
  EXPECT_EQ(completed(all).size, 8);
}

TEST(Options, OwnRendezvousGoesBeforeTheStarters) {
  EXPECT_EQ(completed(with(of_torchrun, {{"FARAD_RENDEZVOUS", "file:///meet"}})).rendezvous, "file:///meet");
}

TEST(Options, WhatTheProgramSaysGoesBeforeTheEnvironment) {
  WorkerOptions own;
  own.rank = 3;
  own.rendezvous = "local://here";
  own.lost_after = 9ms;
  const auto options = completed(with(of_torchrun, {{"FARAD_LOST_AFTER_MS", "250"}}), own);
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.rendezvous, "local://here");
  EXPECT_EQ(options.lost_after, 9ms);
}

TEST(Options, MalformedRankNamesVariableAndValue) {
  EXPECT_THAT(complaint(with(of_torchrun, {{"RANK", "abc"}})), HasSubstr("RANK=\"abc\": expected a whole number"));
  EXPECT_THAT(complaint(with(of_srun, {{"SLURM_NTASKS", "x"}})), HasSubstr("SLURM_NTASKS=\"x\""));
  EXPECT_THAT(complaint(with(of_torchrun, {{"MASTER_PORT", "0"}})), HasSubstr("MASTER_PORT=\"0\""));
}

TEST(Options, RankOutsideTheGroupIsLeftToTheMeeting) {
  const auto options = completed(with(of_mpirun, {{"OMPI_COMM_WORLD_RANK", "3"}}));
  EXPECT_EQ(options.rank, 3);
  EXPECT_TRUE(check(options).ok()) << "the others are to hear of it";
}

TEST(Options, CheckNamesWhatIsMissingAndWhoGivesIt) {
  WorkerOptions options;
  EXPECT_THAT(check(options).message(), HasSubstr("WorkerOptions::rank or RANK"));
  options.rank = 0;
  EXPECT_THAT(check(options).message(), HasSubstr("WorkerOptions::size or WORLD_SIZE"));
  options.size = 1;
  EXPECT_THAT(check(options).message(), HasSubstr("FARAD_RENDEZVOUS"));
  options.rendezvous = "local://x";
  EXPECT_TRUE(check(options).ok());
  options.rank = -2;
  EXPECT_THAT(check(options).message(), HasSubstr("rank -2: expected 0 or more"));
  options.rank = 0;
  options.rpc_timeout = -1ms;
  EXPECT_THAT(check(options).message(), HasSubstr("cannot be negative"));
}

TEST(Options, FromEnvironmentThrowsWhatCompleteReports) {
  ::setenv("RANK", "abc", 1);
  EXPECT_ANY_THROW(WorkerOptions::from_environment());
  ::setenv("RANK", "0", 1);
  EXPECT_EQ(WorkerOptions::from_environment().rank, 0);
  ::unsetenv("RANK");
}

}  // namespace
}  // namespace farad::base
