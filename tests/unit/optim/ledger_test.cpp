#include "optim/ledger.h"

#include <farad/error.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>

namespace farad::optim {
namespace {

constexpr uint64_t coordinator = 9;
constexpr StepId step{coordinator << 48 | 1, 7};

/// Owners of one step, whose calls are done at once; what they do later waits for run().
class Owners {
 public:
  explicit Owners(int count) {
    for (int rank = 0; rank < count; rank++) {
      Ledger::Services services;
      services.self = rank;
      services.ask = [this](int owner, StepId id, int leader) {
        const Promise<Standing> answer;
        lost_.contains(owner) ? answer.set_exception(gone()) : answer.set_value(at(owner).asked(id, leader));
        return answer.future();
      };
      services.await = [this](int owner, StepId id) {
        const Promise<Standing> answer;
        if (!lost_.contains(owner)) return at(owner).awaited(id);
        answer.set_exception(gone());
        return answer.future();
      };
      services.later = [this, rank](std::function<void()> task) { tasks_.push_back({rank, std::move(task)}); };
      services.begin_work = [this] { work_++; };
      services.end_work = [this] { work_--; };
      ledgers_.push_back(std::make_unique<Ledger>(std::move(services)));
      all_.push_back(rank);
    }
  }

  Ledger& at(int rank) { return *ledgers_[rank]; }
  bool open(int rank) {
    return at(rank).open(step, {all_, [this, rank](bool committed) { ended_[rank] = committed; }});
  }
  void prepare(int rank) {
    EXPECT_TRUE(open(rank));
    EXPECT_TRUE(at(rank).prepared(step, true));
  }
  void lose(int rank) { lost_.insert(rank); }
  void lose_coordinator() {
    for (const int rank : all_) {
      if (!lost_.contains(rank)) at(rank).on_lost(coordinator);
    }
    // The lowest first: a task here cannot wait for another one.
    while (!tasks_.empty()) {
      const auto next =
          std::min_element(tasks_.begin(), tasks_.end(), [](auto& a, auto& b) { return a.first < b.first; });
      const auto task = std::move(*next);
      tasks_.erase(next);
      if (!lost_.contains(task.first)) task.second();
    }
  }
  int work() const { return work_; }
  /// By rank, of those that have ended.
  const std::map<int, bool>& ended() const { return ended_; }

 private:
  static std::exception_ptr gone() { return std::make_exception_ptr(PeerLost("[test] gone")); }

  std::vector<std::unique_ptr<Ledger>> ledgers_;
  std::vector<int> all_;
  std::set<int> lost_;
  std::deque<std::pair<int, std::function<void()>>> tasks_;
  std::map<int, bool> ended_;
  int work_ = 0;
};

using Ended = std::map<int, bool>;

TEST(Ledger, CoordinatorsWordEndsAStep) {
  Owners owners(2);
  owners.prepare(0);
  owners.prepare(1);
  EXPECT_EQ(owners.at(0).commit(step).wait(), Standing::Committed);
  EXPECT_EQ(owners.at(1).abort(step).wait(), Standing::Aborted);
  EXPECT_EQ(owners.ended(), (Ended{{0, true}, {1, false}}));
  EXPECT_EQ(owners.at(0).open_steps(), 0u);
  EXPECT_EQ(owners.work(), 0);
}

TEST(Ledger, EndThatOvertakesTheBeginningCounts) {
  Owners owners(1);
  EXPECT_EQ(owners.at(0).abort(step).wait(), Standing::Aborted);
  EXPECT_FALSE(owners.open(0));
}

TEST(Ledger, WhoPreparesEndsWhatWasGivenUpMeanwhile) {
  Owners owners(1);
  EXPECT_TRUE(owners.open(0));
  const auto ended = owners.at(0).abort(step);
  EXPECT_FALSE(ended.ready());
  EXPECT_EQ(owners.ended(), Ended{}) << "its values are still being computed";
  EXPECT_FALSE(owners.at(0).prepared(step, true));
  EXPECT_EQ(owners.ended(), (Ended{{0, false}}));
  EXPECT_EQ(ended.wait(), Standing::Aborted);
}

TEST(Ledger, WithoutTheCoordinatorNobodyCommitsWhatNobodyHas) {
  Owners owners(3);
  for (int rank : {0, 1, 2}) owners.prepare(rank);
  owners.lose_coordinator();
  EXPECT_EQ(owners.ended(), (Ended{{0, false}, {1, false}, {2, false}}));
}

TEST(Ledger, WithoutTheCoordinatorAllCommitWhatOneHas) {
  for (const int told : {0, 1, 2}) {
    Owners owners(3);
    for (int rank : {0, 1, 2}) owners.prepare(rank);
    (void)owners.at(told).commit(step);
    owners.lose_coordinator();
    EXPECT_EQ(owners.ended(), (Ended{{0, true}, {1, true}, {2, true}})) << told;
  }
}

TEST(Ledger, WithoutTheCoordinatorNobodyCommitsIfOneWasNotPrepared) {
  Owners owners(3);
  for (int rank : {0, 2}) owners.prepare(rank);
  owners.lose_coordinator();
  EXPECT_EQ(owners.ended(), (Ended{{0, false}, {2, false}}));
  EXPECT_FALSE(owners.open(1)) << "its vote comes too late";
}

TEST(Ledger, SurvivorsAgreeWhoeverElseIsLost) {
  for (const int told : {0, 1, 2}) {
    for (const int lost : {0, 1, 2}) {
      Owners owners(3);
      for (int rank : {0, 1, 2}) owners.prepare(rank);
      (void)owners.at(told).commit(step);
      owners.lose(lost);
      owners.lose_coordinator();
      for (const int rank : {0, 1, 2}) {
        if (rank == lost) continue;
        EXPECT_EQ(owners.ended().at(rank), told != lost) << told << ' ' << lost;
      }
    }
  }
}

}  // namespace
}  // namespace farad::optim
