/// Members close, or meet at barriers, while the connections between them break, all of them alive: whatever they
/// believe of each other meanwhile, in the end all of them are done.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "rpc/closing.h"
#include "suites/seeds.h"

namespace farad::rpc {
namespace {

using base::Rank;

/// One direction of the connection between two members. A break is a loss at both ends, but each end hears of it in
/// its own time; what it sends before that is lost too, and what comes after it comes over the next connection.
struct Lane {
  std::vector<wire::Message> messages;  // In no order: the fabric promises none.
  bool loss_to_hear = false;            // By the receiver, before any message.
};

class Town {
 public:
  Town(int size, uint64_t seed)
      : size_(size), random_(seed), lanes_(size * size), begun_(size), gone_(size), looks_(size) {
    for (int self = 0; self < size; ++self) {
      members_.push_back(std::make_unique<Closing>(
          rank_of(self), size,
          [this, self](Rank to, wire::Message message) { send(self, to.value, std::move(message)); }, [] {}));
    }
  }

  /// True if all are done in the end.
  bool run(int breaks) {
    int to_begin = size_;
    while (true) {
      if (breaks > 0 && below(8) == 0) {
        --breaks;
        break_between(below(size_), below(size_));
      } else if (to_begin > 0 && below(6) == 0) {
        begin(--to_begin);
      } else if (!step() && breaks == 0 && to_begin == 0) {
        break;
      }
      for (int rank = 0; rank < size_; ++rank) {
        if (!gone_[rank] && members_[rank]->confirmed()) go(rank);
      }
    }
    return std::find(gone_.begin(), gone_.end(), false) == gone_.end();
  }

  /// All come to barriers until that many were passed; who sees a loss gives up and tries again. True if all were.
  bool meet(uint64_t barriers, int breaks) {
    std::vector<uint64_t> waits(size_);
    bool idle = false;
    for (int turn = 0; turn < 10'000; ++turn) {
      bool any = false;
      for (int rank = 0; rank < size_; ++rank) any = go_on(rank, barriers, waits[rank], idle) || any;
      if (breaks > 0 && below(8) == 0) {
        --breaks;
        break_between(below(size_), below(size_));
      }
      const bool stepped = step();
      if (idle && !any && !stepped) break;
      idle = !stepped && breaks == 0;
    }
    return std::all_of(waits.begin(), waits.end(), [&](uint64_t number) { return number > barriers; });
  }

 private:
  /// One member, which waits at the barrier of that `number`, or at none. True if it did anything.
  bool go_on(int rank, uint64_t barriers, uint64_t& number, bool idle) {
    Closing& member = *members_[rank];
    if (number > barriers) return false;
    if (number == 0) {
      // While there is anything to hear, whom it takes for lost may turn out to be there.
      if (!member.lost().empty() && !idle) return false;
      number = member.enter_barrier();
      return true;
    }
    const bool passed = member.barrier_passed(number);
    if (!passed && member.lost().empty()) return false;
    if (!passed) member.give_up_barrier(number);
    number = member.barrier_passed(barriers) ? barriers + 1 : 0;
    return true;
  }

  static Rank rank_of(int number) { return Rank(static_cast<uint16_t>(number)); }
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  Lane& lane(int from, int to) { return lanes_[from * size_ + to]; }
  Activity look(int rank) {
    return {{std::vector<uint64_t>(size_), std::vector<uint64_t>(size_)}, true, ++looks_[rank]};
  }

  void begin(int rank) {
    begun_[rank] = true;
    members_[rank]->begin(look(rank));
  }

  void send(int from, int to, wire::Message message) {
    if (gone_[to]) {
      lane(to, from).loss_to_hear = true;
    } else if (!lane(to, from).loss_to_hear) {  // Else it goes into the connection that is broken.
      lane(from, to).messages.push_back(std::move(message));
    }
  }

  void break_between(int one, int other) {
    if (one == other || gone_[one] || gone_[other]) return;
    for (Lane* each : {&lane(one, other), &lane(other, one)}) *each = {{}, true};
  }

  void go(int rank) {
    gone_[rank] = true;
    for (int other = 0; other < size_; ++other) {
      if (other == rank) continue;
      lane(other, rank) = {};
      lane(rank, other).loss_to_hear = true;  // After what it has said.
    }
  }

  /// One member hears something. False if there is nothing to hear.
  bool step() {
    const int start = below(size_ * size_);
    for (int i = 0; i < size_ * size_; ++i) {
      const int from = (start + i) % (size_ * size_) / size_;
      const int to = (start + i) % size_;
      Lane& at = lane(from, to);
      if (gone_[to] || (at.messages.empty() && !at.loss_to_hear)) continue;
      if (at.loss_to_hear && (at.messages.empty() || !gone_[from])) {
        at.loss_to_hear = false;
        if (begun_[to]) members_[to]->update(look(to));
        members_[to]->on_lost(rank_of(from));
      } else {
        const auto which = at.messages.begin() + below(static_cast<int>(at.messages.size()));
        const wire::Message message = std::move(*which);
        at.messages.erase(which);
        members_[to]->on_alive(rank_of(from));
        if (begun_[to]) members_[to]->update(look(to));
        members_[to]->on_message(rank_of(from), message);
      }
      return true;
    }
    return false;
  }

  const int size_;
  std::mt19937_64 random_;
  std::vector<Lane> lanes_;
  std::vector<bool> begun_;
  std::vector<bool> gone_;
  std::vector<uint64_t> looks_;
  std::vector<std::unique_ptr<Closing>> members_;
};

TEST(ClosingBreaks, AllAreDoneInTheEnd) {
  test::for_each_seed(20'000, [](uint64_t seed) {
    const int size = static_cast<int>(2 + seed % 4);
    EXPECT_TRUE(Town(size, seed).run(static_cast<int>(seed / 4 % 5))) << size << " members";
  });
}

TEST(ClosingBreaks, AllPassTheirBarriersInTheEnd) {
  test::for_each_seed(20'000, [](uint64_t seed) {
    const int size = static_cast<int>(2 + seed % 4);
    EXPECT_TRUE(Town(size, seed).meet(3, static_cast<int>(seed / 4 % 5))) << size << " members";
  });
}

}  // namespace
}  // namespace farad::rpc
