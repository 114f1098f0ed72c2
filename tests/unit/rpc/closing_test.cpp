#include "rpc/closing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace farad::rpc {
namespace {

using base::Rank;
using testing::ElementsAre;
using testing::IsEmpty;

Rank rank_of(int number) { return Rank(static_cast<uint16_t>(number)); }

/// Members that talk through queues, which the test empties by hand.
class Group {
 public:
  explicit Group(int size) : queues_(size * size), looks_(size) {
    for (int self = 0; self < size; ++self) {
      activities_.push_back({{std::vector<uint64_t>(size), std::vector<uint64_t>(size)}, true, 0});
      members_.push_back(make(self, size));
    }
  }
  Closing& operator[](int rank) { return *members_[rank]; }
  int size() const { return static_cast<int>(members_.size()); }

  /// Delivers until nothing is left, or only what goes to or from `except`.
  void settle(int except = -1) {
    for (bool any = true; any;) {
      any = false;
      for (int from = 0; from < size(); ++from) {
        for (int to = 0; to < size(); ++to) {
          if (from != except && to != except) any = deliver(from, to) || any;
        }
      }
    }
  }
  bool deliver(int from, int to) {
    auto& queue = queues_[from * size() + to];
    if (queue.empty()) return false;
    auto message = std::move(queue.front());
    queue.pop_front();
    if (dead_.contains(to)) return true;
    members_[to]->on_alive(rank_of(from));
    members_[to]->on_message(rank_of(from), message);
    return true;
  }

  Activity& now(int rank) { return activities_[rank]; }
  void begin(int rank) { members_[rank]->begin(look(rank)); }
  void update(int rank) { members_[rank]->update(look(rank)); }
  Activity look(int rank) {
    activities_[rank].look = ++looks_[rank];
    return activities_[rank];
  }
  void call(int from, int to) {
    ++now(from).traffic.sent[to];
    ++now(to).traffic.received[from];
  }
  int confirmed() const {
    int count = 0;
    for (const auto& member : members_) count += member->confirmed();
    return count;
  }
  void lose(int rank) {
    dead_.insert(rank);
    for (int other = 0; other < size(); ++other) {
      queues_[rank * size() + other].clear();
      queues_[other * size() + rank].clear();
      if (other != rank) members_[other]->on_lost(rank_of(rank));
    }
  }
  void restart(int rank) {
    lose(rank);
    members_[rank] = make(rank, size());
    dead_.erase(rank);
    settle();
  }
  /// All meet, in the order of `ranks`. As Ending::barrier does, who sees a loss gives up; and it comes again.
  void meet(const std::vector<int>& ranks) {
    std::map<int, uint64_t> waits;
    for (int tries = 0; tries < 3; ++tries) {
      for (int rank : ranks) {
        if (!waits.contains(rank)) waits[rank] = members_[rank]->enter_barrier();
        if (!members_[rank]->lost().empty() && members_[rank]->give_up_barrier(waits[rank])) waits.erase(rank);
        settle();
        if (waits.size() == ranks.size()) continue;
        for (auto [other, number] : waits) EXPECT_FALSE(members_[other]->barrier_passed(number)) << other;
      }
    }
    ASSERT_EQ(waits.size(), ranks.size());
    for (auto [rank, number] : waits) EXPECT_TRUE(members_[rank]->barrier_passed(number)) << rank;
  }

 private:
  std::unique_ptr<Closing> make(int self, int size) {
    auto send = [this, self, size](Rank to, wire::Message message) {
      queues_[self * size + to.value].push_back(std::move(message));
    };
    return std::make_unique<Closing>(rank_of(self), size, send, [] {});
  }

  std::set<int> dead_;
  std::vector<std::deque<wire::Message>> queues_;
  std::vector<uint64_t> looks_;
  std::vector<Activity> activities_;
  std::vector<std::unique_ptr<Closing>> members_;
};

TEST(Closing, IsDecidedWhenAllWantToAndAreIdle) {
  Group group(3);
  group.call(1, 2);
  group.begin(0);
  group.begin(2);
  group.settle();
  EXPECT_EQ(group.confirmed(), 0);

  group.begin(1);
  group.settle();

  EXPECT_EQ(group.confirmed(), 3);
  EXPECT_THAT(group[2].lost(), IsEmpty());
}

TEST(Closing, WaitsForTheBusy) {
  Group group(2);
  group.now(1).idle = false;
  group.begin(0);
  group.begin(1);
  group.settle();
  EXPECT_EQ(group.confirmed(), 0);

  group.now(1).idle = true;
  group.update(1);
  group.settle();

  EXPECT_EQ(group.confirmed(), 2);
}

TEST(Closing, NamesWhoWasKilledBetweenItsReportAndOurClose) {
  Group group(3);
  group.begin(1);
  group.begin(2);
  group.settle();

  group.begin(0);
  group.settle(/*except=*/1);
  EXPECT_EQ(group.confirmed(), 0) << "its report is from before the question, so it may be dead";
  group.lose(1);
  group.settle();

  for (int rank : {0, 2}) {
    EXPECT_TRUE(group[rank].confirmed());
    EXPECT_THAT(group[rank].lost(), ElementsAre(rank_of(1)));
  }
}

TEST(Closing, WaitsForACallOnItsWay) {
  Group group(3);
  ++group.now(1).traffic.sent[2];  // Nobody waits for its result, and worker2 has not heard of it.
  for (int rank = 0; rank < 3; ++rank) group.begin(rank);
  group.settle();
  EXPECT_EQ(group.confirmed(), 0);

  ++group.now(2).traffic.received[1];
  group.update(2);
  group.settle();

  EXPECT_EQ(group.confirmed(), 3);
}

TEST(Closing, OlderLookDoesNotReplaceALaterOne) {
  Group group(2);
  group.begin(0);
  const Activity older = group.look(1);
  group.call(0, 1);
  group.update(0);
  group.begin(1);

  group[1].update(older);
  group.settle();

  EXPECT_EQ(group.confirmed(), 2);
}

TEST(Closing, DecidesLastOfAllWhoKnow) {
  Group group(2);
  group.begin(0);
  group.begin(1);
  while (group.deliver(1, 0)) {
  }
  EXPECT_FALSE(group[0].confirmed()) << "worker1 has not heard of it";
  group.settle();
  EXPECT_TRUE(group[0].confirmed());
}

TEST(Closing, NamesTheLostWhoeverItWas) {
  for (int lost = 0; lost < 3; ++lost) {
    Group group(3);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != lost) group.begin(rank);
    }
    group.settle(lost);
    group.lose(lost);
    group.settle();

    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      EXPECT_TRUE(group[rank].confirmed()) << lost << " lost, at " << rank;
      EXPECT_THAT(group[rank].lost(), ElementsAre(rank_of(lost)));
    }
  }
}

TEST(Closing, RestartedMemberIsNotLost) {
  Group group(2);
  group.lose(1);
  EXPECT_THAT(group[0].lost(), ElementsAre(rank_of(1)));

  group[0].on_alive(rank_of(1));

  EXPECT_THAT(group[0].lost(), IsEmpty());
}

TEST(Closing, OneThatLeavesIsNeitherWaitedForNorLost) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    Group group(3);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != leaver) group.begin(rank);
    }
    group[leaver].leave();
    EXPECT_FALSE(group[leaver].all_know_we_left());
    group.settle();
    EXPECT_TRUE(group[leaver].all_know_we_left());
    group.lose(leaver);
    group.settle();

    for (int rank = 0; rank < 3; ++rank) {
      if (rank == leaver) continue;
      EXPECT_TRUE(group[rank].confirmed()) << leaver << " left, at " << rank;
      EXPECT_THAT(group[rank].lost(), IsEmpty());
    }
  }
}

TEST(Closing, BarrierPassesWhenAllHaveCome) {
  Group group(3);
  EXPECT_EQ(group[0].enter_barrier(), 1u);
  group[2].enter_barrier();
  group.settle();
  EXPECT_FALSE(group[0].barrier_passed(1));

  group[1].enter_barrier();
  group.settle();

  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group[rank].barrier_passed(1));
  EXPECT_FALSE(group[0].barrier_passed(2));
}

TEST(Closing, ThoseAtABarrierHearOfALossThatOnlyTheDeciderSaw) {
  Group group(3);
  group[0].enter_barrier();
  group[2].enter_barrier();
  group.settle(1);

  group[0].on_lost(rank_of(1));
  group.settle(1);

  EXPECT_THAT(group[2].lost(), ElementsAre(rank_of(1)));
  EXPECT_FALSE(group[0].barrier_passed(1));
}

TEST(Closing, BarrierGoesOnWhenTheOneWhoDecidesLeaves) {
  Group group(3);
  group[1].enter_barrier();
  group.settle();
  group[0].leave();
  group.settle();
  group[2].enter_barrier();
  group.settle();

  EXPECT_TRUE(group[1].barrier_passed(1));
  EXPECT_TRUE(group[2].barrier_passed(1));
}

TEST(Closing, RestartedMemberMeetsTheOthersAtTheirNextBarrier) {
  for (int restarted = 0; restarted < 3; ++restarted) {
    for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
      SCOPED_TRACE(std::to_string(restarted) + " restarted, first " + std::to_string(order[0]));
      Group group(3);
      for (int before = 0; before < 2; ++before) group.meet(order);
      group.restart(restarted);
      for (int after = 0; after < 3; ++after) group.meet(order);
    }
  }
}

TEST(Closing, MembersOfWhomAllWereRestartedMeet) {
  Group group(2);
  for (int before = 0; before < 2; ++before) group.meet({0, 1});
  group.restart(0);
  group.restart(1);
  for (int after = 0; after < 2; ++after) group.meet({1, 0});
}

TEST(Closing, BarrierDoesNotPassWithOneThatHasGivenItUp) {
  Group group(3);
  group.meet({0, 1, 2});
  const auto number = group[1].enter_barrier();
  group.settle();
  EXPECT_TRUE(group[1].give_up_barrier(number));
  for (int rank : {0, 2}) group[rank].enter_barrier();
  group.settle();
  EXPECT_FALSE(group[0].barrier_passed(2));

  EXPECT_EQ(group[1].enter_barrier(), number);
  group.settle();

  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group[rank].barrier_passed(2));
  EXPECT_FALSE(group[1].give_up_barrier(number)) << "it was passed";
}

TEST(Closing, NonsenseIsIgnored) {
  Group group(2);
  wire::Message message;
  message.body = {'x', 'y'};

  group[0].on_message(rank_of(1), message);

  EXPECT_EQ(group.confirmed(), 0);
}

}  // namespace
}  // namespace farad::rpc
