// The protocol of references without threads or sockets: several tables, and messages between them that arrive in any
// order.

#include "ref/table.h"

#include <farad/error.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace farad::ref {
namespace {

using base::Rank;
using detail::RefHandle;
using Handle = std::shared_ptr<RefHandle>;

Rank rank(size_t n) { return Rank(static_cast<uint16_t>(n)); }

net::Peer peer(size_t n) { return {rank(n), base::Incarnation(1)}; }

/// Counts itself while it lives.
struct Value {
  explicit Value(int& count) : alive(count) { ++alive; }
  ~Value() { --alive; }
  int& alive;
};

struct Group {
  explicit Group(size_t size, unsigned seed = 0) : random(seed) {
    for (size_t i = 0; i < size; ++i) {
      Table::Services services;
      services.post = [this, i](Rank to, wire::Message message) {
        in_flight.push_back(
            [this, i, to, message = std::move(message)] { tables[to.value]->on_message(peer(i), message); });
        return net::Sent{{}, base::Incarnation(1)};
      };
      services.later = services.discard = [](std::function<void()> task) { task(); };
      services.name_of = [](Rank r) { return "worker" + std::to_string(r.value); };
      tables.push_back(std::make_shared<Table>(rank(i), 1000 + i, services));
    }
  }

  ~Group() {
    for (auto& table : tables) table->close();  // So that what is still held says nothing when it goes.
  }

  bool deliver_one() {
    if (in_flight.empty()) return false;
    const size_t pick = random() % in_flight.size();
    auto message = std::move(in_flight[pick]);
    in_flight.erase(in_flight.begin() + static_cast<ptrdiff_t>(pick));
    message();
    return true;
  }
  void deliver_all() {
    while (deliver_one()) {
    }
  }
  /// `maker` asks `owner` to make a value; the call is on its way.
  Handle remote(size_t maker, size_t owner, int& alive) {
    auto handle = tables[maker]->begin(rank(owner), "make");
    tables[maker]->sent(peer(owner), {}, handle->id);
    in_flight.push_back([this, maker, owner, handle, &alive] {
      tables[owner]->expect(peer(maker), handle->id, "make");
      tables[owner]->keep(handle->id, std::make_shared<Value>(alive));
      tables[maker]->confirm(handle);
    });
    return handle;
  }
  /// A message with the reference goes from one to another; `arrived` gets it there.
  void lend(size_t from, size_t to, const Handle& handle, std::function<void(Handle)> arrived) {
    auto loans = tables[from]->lend(rank(to), {handle});
    tables[from]->sent(from == to ? net::Peer{rank(to), {}} : peer(to), loans, {});
    in_flight.push_back([this, from, to, loans, arrived] { arrived(tables[to]->receive(peer(from), loans, "f")[0]); });
  }

  std::mt19937 random;
  std::vector<std::shared_ptr<Table>> tables;
  std::deque<std::function<void()>> in_flight;
};

TEST(RefTable, AnOwnValueLivesAsLongAsItsHandles) {
  int alive = 0;
  Group group(1);
  auto handle = group.tables[0]->own(std::make_shared<Value>(alive), "here");
  auto copy = handle;
  handle.reset();
  EXPECT_EQ(alive, 1);
  copy.reset();
  EXPECT_EQ(alive, 0);
}

TEST(RefTable, AValueMadeElsewhereIsFreedWhenItsMakerLetsGo) {
  int alive = 0;
  Group group(2);
  auto handle = group.remote(0, 1, alive);
  group.deliver_all();
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(handle->confirmed);
  handle.reset();
  group.deliver_all();
  EXPECT_EQ(alive, 0);
}

TEST(RefTable, TheLenderMayLetGoBeforeAnybodyHasHeardOfTheLoan) {
  int alive = 0;
  Group group(3);
  auto handle = group.remote(0, 1, alive);
  group.deliver_all();
  Handle there;
  group.lend(0, 2, handle, [&](Handle h) { there = h; });
  handle.reset();
  group.deliver_all();
  ASSERT_TRUE(there);
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(group.tables[0]->stats().lent, 0u) << "the lender has let go";
  there.reset();
  group.deliver_all();
  EXPECT_EQ(alive, 0);
}

TEST(RefTable, ErrorsOfTheMakingAreKeptForEveryUse) {
  Group group(2);
  auto handle = group.tables[0]->begin(rank(1), "make");
  group.tables[1]->expect(peer(0), handle->id, "make");
  group.tables[1]->fail(handle->id, std::make_exception_ptr(Timeout("x")));
  for (int i = 0; i < 2; ++i) {
    std::exception_ptr seen;
    group.tables[1]->when_ready(handle->id, [&](std::shared_ptr<void>, std::exception_ptr error) { seen = error; });
    EXPECT_THROW(std::rethrow_exception(seen), Timeout);
  }
}

TEST(RefTable, WhoWaitsForAValueThatWasNotMadeBeforeTheEndHearsOfIt) {
  Group group(1);
  const auto handle = group.tables[0]->begin(rank(0), "make");
  std::exception_ptr seen;
  group.tables[0]->when_ready(handle->id, [&](std::shared_ptr<void>, std::exception_ptr error) { seen = error; });
  EXPECT_FALSE(seen);

  group.tables[0]->close();

  ASSERT_TRUE(seen);
  EXPECT_THROW(std::rethrow_exception(seen), Closed);
}

TEST(RefTable, AUseThatOvertakesTheMakingWaitsForIt) {
  int alive = 0;
  Group group(2);
  auto handle = group.remote(0, 1, alive);
  std::shared_ptr<void> value;
  group.tables[1]->when_ready(handle->id, [&](std::shared_ptr<void> v, std::exception_ptr) { value = v; });
  EXPECT_FALSE(value);
  group.deliver_all();
  EXPECT_TRUE(value);
}

TEST(RefTable, ALostWorkersHoldsAreDroppedAndItsValuesMarked) {
  int alive = 0;
  Group group(3);
  auto mine = group.remote(0, 1, alive);
  group.deliver_all();
  Handle at2;
  group.lend(0, 2, mine, [&](Handle h) { at2 = h; });
  group.deliver_all();
  mine.reset();
  group.deliver_all();
  EXPECT_EQ(alive, 1) << "worker2 holds it";
  group.tables[1]->on_lost(peer(2));
  EXPECT_EQ(alive, 0);
  group.tables[2]->on_lost(peer(1));
  EXPECT_TRUE(at2->lost);
}

TEST(RefTable, WhatIsLentToALostWorkerIsLetGoOf) {
  int alive = 0;
  Group group(3);
  auto handle = group.remote(0, 1, alive);
  group.deliver_all();
  group.lend(0, 2, handle, [](Handle) {});
  group.in_flight.clear();  // It never arrives.
  group.tables[0]->on_lost(peer(2));
  EXPECT_EQ(group.tables[0]->stats().lent, 0u);
  handle.reset();
  group.deliver_all();
  EXPECT_EQ(alive, 0);
}

TEST(RefTable, WhatDidNotGoAfterAllIsLetGoOf) {
  int here = 0, there = 0;
  Group group(3);
  auto own = group.tables[0]->own(std::make_shared<Value>(here), "here");
  auto borrowed = group.remote(0, 1, there);
  group.deliver_all();
  const auto loans = group.tables[0]->lend(rank(2), {own, borrowed});
  group.tables[0]->sent(peer(2), loans, {});
  own.reset();
  borrowed.reset();
  group.deliver_all();
  EXPECT_EQ(here + there, 2) << "held for who will get them";
  group.tables[0]->take_back(peer(2), loans);
  group.deliver_all();
  EXPECT_EQ(here + there, 0);
  EXPECT_EQ(group.tables[0]->stats().lent, 0u);
}

TEST(RefTable, AMakerLostBeforeItsCallCameFailsWhoWaits) {
  int alive = 0;
  Group group(3);
  auto handle = group.remote(0, 1, alive);
  Handle at2;
  auto making = std::move(group.in_flight.front());
  group.in_flight.clear();
  group.lend(0, 2, handle, [&](Handle h) { at2 = h; });
  group.deliver_all();
  std::exception_ptr seen;
  group.tables[1]->when_ready(handle->id, [&](std::shared_ptr<void>, std::exception_ptr error) { seen = error; });
  group.tables[1]->on_lost(peer(0));
  ASSERT_TRUE(seen);
  EXPECT_THROW(std::rethrow_exception(seen), PeerLost);
}

TEST(RefTable, WhyTheCallThatMakesItNeverWentIsToldToWhoeverWaits) {
  for (const bool asked_before : {false, true}) {
    Group group(3);
    auto handle = group.tables[0]->begin(rank(1), "make");
    Handle at2;
    group.lend(0, 2, handle, [&](Handle h) { at2 = h; });
    if (asked_before) group.deliver_all();
    std::exception_ptr seen;
    group.tables[1]->when_ready(handle->id, [&](std::shared_ptr<void>, std::exception_ptr error) { seen = error; });
    EXPECT_FALSE(seen) << "the call may still be to come";

    handle->fail(std::make_exception_ptr(Timeout("[rpc] not sent in 20 ms")));
    group.tables[0]->confirm(handle);
    group.deliver_all();

    ASSERT_TRUE(seen);
    try {
      std::rethrow_exception(seen);
    } catch (const Timeout& error) {
      EXPECT_STREQ(error.what_without_backtrace(), "[rpc] not sent in 20 ms");
    }
  }
}

TEST(RefTable, AReferenceThatComesAfterItsValueHasGoneSaysSo) {
  int alive = 0;
  Group group(3);
  auto handle = group.remote(0, 1, alive);
  group.deliver_all();
  Handle at2;
  group.lend(0, 2, handle, [&](Handle h) { at2 = h; });
  group.tables[1]->on_lost(peer(0));  // Only the connection broke: the loan is still on its way.
  EXPECT_EQ(alive, 0);
  group.deliver_all();
  std::exception_ptr seen;
  group.tables[1]->when_ready(handle->id, [&](std::shared_ptr<void>, std::exception_ptr error) { seen = error; });
  ASSERT_TRUE(seen);
  EXPECT_THROW(std::rethrow_exception(seen), PeerLost);
  at2.reset();
  group.deliver_all();
  EXPECT_EQ(group.tables[1]->stats().owned, 0u);
}

TEST(RefTable, TheLossOfOneLifeTakesNoHoldsOfTheNext) {
  int alive = 0;
  Group group(2);
  auto handle = group.tables[0]->own(std::make_shared<Value>(alive), "here");
  const net::Peer before = peer(1), after{rank(1), base::Incarnation(2)};
  auto loans = group.tables[0]->lend(rank(1), {handle});
  handle.reset();
  group.tables[0]->on_lost(before);  // While the message with the loan has yet to find out where it goes.
  group.tables[0]->sent(after, loans, {});
  EXPECT_EQ(alive, 1);
  group.tables[0]->on_lost(after);
  EXPECT_EQ(alive, 0);
}

TEST(RefTable, ALoanToALifeThatIsLostAlreadyHoldsNothing) {
  int alive = 0;
  Group group(2);
  auto handle = group.tables[0]->own(std::make_shared<Value>(alive), "here");
  auto loans = group.tables[0]->lend(rank(1), {handle});
  handle.reset();
  group.tables[0]->on_lost(peer(1));
  EXPECT_EQ(alive, 1);
  group.tables[0]->sent(peer(1), loans, {});
  EXPECT_EQ(alive, 0);
}

// Random programs: references are made, lent in all directions and let go of, while messages overtake each other. The
// value must live as long as there is a handle anywhere, or one on its way, and be gone soon after.
TEST(RefTableProperty, AValueLivesExactlyAsLongAsSomebodyHoldsIt) {
  const char* given = std::getenv("FARAD_TEST_SEEDS");
  const unsigned seeds = given ? static_cast<unsigned>(std::stoul(given)) : 2000;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const size_t size = 1 + random() % 5;
    int alive = 0;
    Group group(size, seed);
    std::vector<std::vector<Handle>> held(size);
    int on_the_way = 0;
    const size_t maker = random() % size, owner = random() % size;
    held[maker].push_back(maker == owner ? group.tables[owner]->own(std::make_shared<Value>(alive), "here")
                                         : group.remote(maker, owner, alive));
    bool made = maker == owner;
    for (int step = 0; step < 60; ++step) {
      const size_t at = random() % size;
      switch (random() % 4) {
        case 0:
          if (!held[at].empty()) {
            const size_t to = random() % size;
            ++on_the_way;
            group.lend(at, to, held[at][random() % held[at].size()], [&, to](Handle handle) {
              --on_the_way;
              held[to].push_back(std::move(handle));
            });
          }
          break;
        case 1:
          if (!held[at].empty()) held[at].erase(held[at].begin() + static_cast<ptrdiff_t>(random() % held[at].size()));
          break;
        default:
          group.deliver_one();
      }
      made = made || alive > 0;
      size_t handles = 0;
      for (const auto& each : held) handles += each.size();
      if (made && handles + on_the_way > 0) {
        ASSERT_EQ(alive, 1) << "step " << step;
      }
    }
    // What is on its way arrives and is let go of, until nothing is left.
    while (group.deliver_one()) {
    }
    for (auto& each : held) each.clear();
    group.deliver_all();
    for (auto& each : held) each.clear();
    group.deliver_all();
    ASSERT_EQ(alive, 0);
    for (const auto& table : group.tables) {
      ASSERT_EQ(table->stats().owned, 0u);
      ASSERT_EQ(table->stats().borrowed, 0u);
      ASSERT_EQ(table->stats().lent, 0u);
      ASSERT_EQ(table->stats().unsettled, 0u);
    }
  }
}

}  // namespace
}  // namespace farad::ref
