// What only a process of its own can do to its callers: die, stop, come back.

#include <ATen/ops/ones.h>
#include <farad/rref.h>
#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "process/nursery.h"
#include "process/rpc/member.h"
#include "temporary_directory.h"
#include "unit/net/rendezvous_support.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

int64_t process_here() { return getpid(); }
/// A result that never comes.
Future<int64_t> never() {
  static const Promise<int64_t> kept;
  return kept.future();
}
int64_t call_never(int to) { return Worker::current().rpc_sync<never>(to); }
void take(const at::Tensor&) {}
int64_t count(const at::Tensor& tensor) { return tensor.numel(); }
int64_t fetch(const RRef<int64_t>& reference) { return reference.to_here(); }
void ignore(const RRef<int64_t>&) {}
int64_t call_process(int at) { return Worker::current().rpc_sync<process_here>(at); }
RRef<int64_t>& kept() {
  static RRef<int64_t> reference;
  return reference;
}
void keep(RRef<int64_t> reference) { kept() = std::move(reference); }
int64_t same(int64_t& value) { return value; }
int64_t fetch_kept() { return kept().to_here(); }
int64_t call_kept() { return kept().rpc_sync<same>(); }

template <class E>
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// One member here, rank 0 unless said otherwise, and two in processes of their own.
class RpcProcess : public testing::TestWithParam<std::string> {
 protected:
  static constexpr auto lost_after = 1000ms;

  explicit RpcProcess(int here = 0, std::chrono::milliseconds lost_after = RpcProcess::lost_after,
                      std::string meeting = {})
      : here_(here) {
    plan_.size = 3;
    plan_.lost_after_ms = static_cast<int>(lost_after.count());
    GetParam().copy(plan_.transport, sizeof plan_.transport - 1);
    if (meeting.empty()) meeting = "file://" + directory_.path() + "/meeting";
    meeting.copy(plan_.rendezvous, sizeof plan_.rendezvous - 1);
    for (int rank : elsewhere()) bear(rank);
    WorkerOptions options;
    options.rank = here;
    options.size = 3;
    options.transport = GetParam();
    options.rendezvous = plan_.rendezvous;
    options.lost_after = lost_after;
    options.rpc_timeout = 100s;
    worker_ = std::make_unique<Worker>(Worker::join(options));
  }
  ~RpcProcess() override {
    worker_.reset();
    for (int rank : elsewhere()) kill(rank);
  }

  std::vector<int> elsewhere() const {
    std::vector<int> ranks{0, 1, 2};
    std::erase(ranks, here_);
    return ranks;
  }
  void bear(int rank) {
    plan_.rank = rank;
    children_[rank] = Nursery::bear<be_a_member>(plan_);
  }
  void kill(int rank) {
    if (const pid_t child = std::exchange(children_[rank], 0)) Nursery::kill(child);
  }
  /// The exit code of one that ends by itself.
  int end_of(int rank) {
    const int status = Nursery::bury(std::exchange(children_[rank], 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// Calls to both that will not return; both know of them.
  std::pair<Future<int64_t>, Future<int64_t>> calls_in_flight() {
    auto calls = std::pair(worker_->rpc_async<never>("worker1"), worker_->rpc_async<never>("worker2"));
    for (int rank : {1, 2}) EXPECT_EQ(worker_->rpc_sync<process_here>(rank), children_[rank]);
    return calls;
  }
  void others_go_on(const Future<int64_t>& in_flight) {
    EXPECT_FALSE(in_flight.ready());
    EXPECT_EQ(worker_->rpc_sync<process_here>("worker2"), children_[2]);
  }

  /// Calls until one that was started anew has joined.
  int64_t call_restarted(const char* name) {
    for (const auto deadline = Clock::now() + 30s; Clock::now() < deadline;) {
      try {
        return worker_->rpc_sync<process_here>(name);
      } catch (const PeerLost&) {  // It has not joined yet.
      }
    }
    return 0;
  }

  const int here_;
  const TemporaryDirectory directory_;
  MemberPlan plan_;
  pid_t children_[3] = {};
  std::unique_ptr<Worker> worker_;
};

TEST_P(RpcProcess, CallsInFlightFailWhenThePeerStopsAndOnlyThose) {
  auto [doomed, safe] = calls_in_flight();

  const auto before = Clock::now();
  ::kill(children_[1], SIGSTOP);

  EXPECT_THAT(message_of<PeerLost>([&] { doomed.wait(); }), AllOf(HasSubstr("never"), HasSubstr("worker1")));
  EXPECT_LE(Clock::now() - before, 3 * lost_after);
  others_go_on(safe);
}

TEST_P(RpcProcess, LossSomewhereInAChainIsNamedAtItsBeginning) {
  auto reply = worker_->rpc_async<call_never>("worker2", 1);
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker2"), children_[2]);
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);

  kill(1);

  EXPECT_THAT(message_of<RemoteError>([&] { reply.wait(); }),
              AllOf(HasSubstr("worker0 → worker2"), HasSubstr("PeerLost"), HasSubstr("to worker1")));
}

TEST_P(RpcProcess, ReferencesToAKilledOwnerAreLostAtTheMakerAndAtAThirdHolder) {
  const auto made = worker_->remote<process_here>("worker1");
  worker_->rpc_sync<keep>("worker2", made);
  ASSERT_EQ(made.to_here(), children_[1]);
  ASSERT_EQ(worker_->rpc_sync<fetch_kept>("worker2"), children_[1]);

  kill(1);

  const auto lost_there = AllOf(HasSubstr("worker2"), HasSubstr("PeerLost"), HasSubstr("worker1"));
  for (int use = 0; use < 2; ++use) {
    EXPECT_THAT(message_of<PeerLost>([&] { made.to_here(); }), HasSubstr("worker1"));
    EXPECT_THAT(message_of<PeerLost>([&] { made.rpc_sync<same>(); }), HasSubstr("worker1"));
    EXPECT_THAT(message_of<RemoteError>([&] { worker_->rpc_sync<fetch_kept>("worker2"); }), lost_there);
    EXPECT_THAT(message_of<RemoteError>([&] { worker_->rpc_sync<call_kept>("worker2"); }), lost_there);
  }
  EXPECT_EQ(worker_->rpc_sync<process_here>("worker2"), children_[2]) << "which goes on";
}

TEST_P(RpcProcess, KilledMemberIsNamedByCloseOnEverySide) {
  kill(1);

  EXPECT_THAT(message_of<PeerLost>([&] { worker_->close(); }), HasSubstr("worker1"));
  EXPECT_EQ(end_of(2), 1) << "its close() threw PeerLost";
}

TEST_P(RpcProcess, EndOfRankZeroWithoutCloseHoldsNobodyUp) {
  worker_.reset();

  EXPECT_EQ(end_of(1), 1) << "its close() threw PeerLost";
  EXPECT_EQ(end_of(2), 1);
}

TEST_P(RpcProcess, RestartedMemberCanBeCalledAgainAndClosedWith) {
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);
  kill(1);
  EXPECT_THROW(worker_->rpc_sync<process_here>("worker1"), PeerLost);

  bear(1);

  EXPECT_EQ(call_restarted("worker1"), children_[1]);
  EXPECT_NO_THROW(worker_->close());
  EXPECT_EQ(end_of(1), 0);
  EXPECT_EQ(end_of(2), 0);
}

/// Comes to a barrier until all others do, too.
void meet() {
  for (const auto deadline = Clock::now() + 30s;;) {
    try {
      return Worker::current().barrier();
    } catch (const PeerLost&) {  // It may be back, and we have not heard of it yet.
      if (Clock::now() > deadline) throw;
    }
  }
}

TEST_P(RpcProcess, RestartedMemberMeetsTheOthersAtTheirNextBarrier) {
  const auto all_meet = [&] {
    std::vector<Future<void>> all;
    for (int rank : {0, 1, 2}) all.push_back(worker_->rpc_async<meet>(rank));
    when_all(all).wait();
  };
  for (int before = 0; before < 2; ++before) all_meet();
  kill(1);
  bear(1);
  ASSERT_EQ(call_restarted("worker1"), children_[1]);

  for (int after = 0; after < 2; ++after) all_meet();

  EXPECT_NO_THROW(worker_->close());
}

/// Silence says nothing here for a minute; only the end of a connection does.
class RpcProcessOfLongSilence : public RpcProcess {
 protected:
  RpcProcessOfLongSilence() : RpcProcess(0, 60s) {}
};

TEST_P(RpcProcessOfLongSilence, CallsInFlightFailAtOnceWhenThePeerIsKilledAndOnlyThose) {
  auto [doomed, safe] = calls_in_flight();

  const auto before = Clock::now();
  kill(1);

  EXPECT_THAT(message_of<PeerLost>([&] { doomed.wait(); }), AllOf(HasSubstr("never"), HasSubstr("worker1")));
  EXPECT_LE(Clock::now() - before, 5s);
  others_go_on(safe);
  EXPECT_THROW(worker_->rpc_sync<process_here>("worker1"), PeerLost);
}

/// Rank 0 in a process of its own, so that it can be killed.
class RpcProcessBesideRankZero : public RpcProcess {
 protected:
  RpcProcessBesideRankZero() : RpcProcess(2) {}
};

TEST_P(RpcProcessBesideRankZero, OthersGoOnWhenRankZeroIsKilledAndTakeItBack) {
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker0"), children_[0]);

  kill(0);

  EXPECT_THAT(message_of<PeerLost>([&] { worker_->rpc_sync<process_here>("worker0"); }), HasSubstr("worker0"));
  EXPECT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);
  EXPECT_EQ(worker_->rpc_sync<call_process>("worker1", here_), getpid());

  bear(0);

  EXPECT_EQ(call_restarted("worker0"), children_[0]);
  EXPECT_EQ(worker_->rpc_sync<call_process>("worker0", 1), children_[1]);
  EXPECT_NO_THROW(worker_->close());
  EXPECT_EQ(end_of(0), 0);
  EXPECT_EQ(end_of(1), 0);
}

/// The same where rank 0 holds the meeting, too.
class RpcProcessWithoutItsMeeting : public RpcProcess {
 protected:
  RpcProcessWithoutItsMeeting()
      : RpcProcess(2, RpcProcess::lost_after, "tcp://127.0.0.1:" + std::to_string(net::test::free_port())) {}
};

TEST_P(RpcProcessWithoutItsMeeting, OthersGoOnAndCloseWhenRankZeroIsKilled) {
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker0"), children_[0]);

  kill(0);

  EXPECT_THAT(message_of<PeerLost>([&] { worker_->rpc_sync<process_here>("worker0"); }), HasSubstr("worker0"));
  EXPECT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);
  EXPECT_EQ(worker_->rpc_sync<call_process>("worker1", here_), getpid());
  EXPECT_THAT(message_of<PeerLost>([&] { worker_->close(); }), HasSubstr("worker0"));
  EXPECT_EQ(end_of(1), 1) << "its close() threw PeerLost";
}

TEST_P(RpcProcessWithoutItsMeeting, WhoComesBackIsToldThatRankZeroIsNotThereAndTheOthersGoOn) {
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker0"), children_[0]);
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);
  kill(0);
  kill(1);

  WorkerOptions again;
  again.rank = 1;
  again.size = 3;
  again.transport = GetParam();
  again.rendezvous = plan_.rendezvous;
  again.join_timeout = 1s;
  EXPECT_THAT(message_of<Timeout>([&] { Worker::join(again); }),
              AllOf(HasSubstr("rank 0, which holds the meeting, did not come in time")));

  EXPECT_EQ(worker_->rpc_sync<process_here>("worker2"), getpid());
  EXPECT_THAT(message_of<PeerLost>([&] { worker_->close(); }), AllOf(HasSubstr("worker0"), HasSubstr("worker1")));
}

/// A member that stops is not given up.
class RpcProcessOfPatience : public RpcProcess {
 protected:
  RpcProcessOfPatience() : RpcProcess(0, 0ms) {}
};

TEST_P(RpcProcessOfPatience, TimeOfACallIsUpAlsoBeforeThereWasRoomToSendIt) {
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker1"), children_[1]);
  const auto large = at::ones({4 << 20});
  const auto caller = worker_->with({.timeout = 20ms});
  ::kill(children_[1], SIGSTOP);

  // More than any queue takes. That nobody takes it in is for the call's time to find out, not for lost_after.
  for (int i = 0; i < 12; ++i) {
    EXPECT_THAT(message_of<Timeout>([&] { caller.rpc_sync<take>("worker1", large); }),
                AllOf(HasSubstr("take"), HasSubstr("worker1")));
  }
}

TEST_P(RpcProcessOfPatience, HoldersOfAValueWhoseMakingWasNeverSentHearWhy) {
  for (int rank : {1, 2}) ASSERT_EQ(worker_->rpc_sync<process_here>(rank), children_[rank]);
  const auto large = at::ones({4 << 20});
  const auto caller = worker_->with({.timeout = 20ms});
  ::kill(children_[1], SIGSTOP);
  RRef<int64_t> unmade;
  const auto error_here = [&] { return message_of<Timeout>([&] { unmade.to_here(); }); };
  for (int i = 0; i < 12; ++i) unmade = caller.remote<count>("worker1", large);
  ASSERT_THAT(error_here(), HasSubstr("not sent"));

  ::kill(children_[1], SIGCONT);

  EXPECT_THAT(message_of<RemoteError>([&] { worker_->rpc_sync<fetch>("worker2", unmade); }),
              AllOf(HasSubstr("farad::Timeout"), HasSubstr("count"), HasSubstr("not sent")));
  EXPECT_THAT(error_here(), HasSubstr("not sent"));
}

TEST_P(RpcProcessOfPatience, LendingWaitsForNobodyButTheFunction) {
  const auto made = worker_->remote<process_here>("worker1");
  ASSERT_EQ(made.to_here(), children_[1]);
  ASSERT_EQ(worker_->rpc_sync<process_here>("worker2"), children_[2]);
  ::kill(children_[1], SIGSTOP);  // The owner says nothing any more.

  EXPECT_NO_THROW(worker_->with({.timeout = 20s}).rpc_sync<ignore>("worker2", made));
}

INSTANTIATE_TEST_SUITE_P(Each, RpcProcessOfPatience, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Each, RpcProcessOfLongSilence, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Each, RpcProcessWithoutItsMeeting, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Each, RpcProcessBesideRankZero, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Each, RpcProcess, testing::Values("shm", "tcp"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
