// Closing, losing, coming back.

#include <farad/error.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "suites/transport_suite.h"

namespace farad::test {
namespace {

using base::Incarnation;
using base::Rank;
using What = Recorder::Heard::What;

auto lost_once(int rank) {
  return [rank](const Recorder& heard) { return heard.losses_of(Rank(rank)) >= 1; };
}
auto so_many(size_t messages) {
  return [messages](const Recorder& heard) { return heard.messages() >= messages; };
}

using Tags = std::multiset<uint64_t>;
Tags tags_of(const Recorder::History& history) {
  Tags tags;
  for (const auto& heard : history) {
    if (heard.what == What::Message) tags.insert(heard.message.tag);
  }
  return tags;
}

std::set<Incarnation> lost_in(const Recorder::History& history) {
  std::set<Incarnation> lost;
  for (const auto& heard : history) {
    if (heard.what == What::Lost) lost.insert(heard.peer.incarnation);
  }
  return lost;
}

template <class Whole, class Part>
bool includes(const Whole& whole, const Part& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

/// Sends until closed; which tags went to which life of the peer.
using SentTags = std::map<uint64_t, Incarnation>;
SentTags send_for_a_while(net::Fabric& fabric, int to, uint64_t first_tag, uint64_t count) {
  SentTags sent;
  for (uint64_t tag = first_tag; tag < first_tag + count; ++tag) {
    try {
      sent[tag] = fabric.send(Rank(to), filled(tag, 100));
    } catch (const PeerLost&) {
      continue;  // Nothing was sent.
    } catch (const Closed&) {
      break;
    }
  }
  return sent;
}

TEST_P(TransportSuite, ClosedWorkerRefusesToSendAndMayBeClosedTwice) {
  with_workers(2, [](Workers& workers) {
    workers[0].close();
    workers[0].close();

    EXPECT_THROW(workers[0].send(Rank(1), {}), Closed);
    EXPECT_EQ(workers[0].post(Rank(1), {}).status.code(), base::Code::Closed);
  });
}

TEST_P(TransportSuite, PeerThatClosesIsLostOnceAndNothingOfItIsHeardLater) {
  with_workers(3, [](Workers& workers) {
    for (uint64_t tag = 0; tag < 20; ++tag) workers[1].send(Rank(0), tagged(tag));
    const auto incarnation = workers[0].send(Rank(1), {});
    ASSERT_TRUE(workers.wait_until(0, so_many(20)));

    workers[1].close();

    ASSERT_TRUE(workers.wait_until(0, lost_once(1)));
    // A message by way of the third worker: whatever else there was to hear of the lost one would be here by then.
    workers[2].send(Rank(0), tagged(99));
    ASSERT_TRUE(workers.wait_until(0, so_many(21)));
    const auto history = workers.heard(0).snapshot();
    size_t losses = 0;
    for (const auto& heard : history) {
      if (heard.peer.rank != Rank(1)) continue;
      EXPECT_EQ(heard.peer.incarnation, incarnation) << "one life, however many messages, in both directions";
      EXPECT_EQ(losses, 0u) << "nothing after the end";
      losses += heard.what == What::Lost;
    }
    EXPECT_EQ(losses, 1u);
    EXPECT_EQ(workers.heard(2).snapshot().size(), 0u) << "who never spoke to it need not hear of it";
  });
}

TEST_P(TransportSuite, PeerThatEndsWithoutClosingIsLost) {
  with_workers(2, [](Workers& workers) {
    workers[0].send(Rank(1), {});
    ASSERT_TRUE(workers.wait_until(1, so_many(1)));

    workers.drop(1);

    EXPECT_TRUE(workers.wait_until(0, lost_once(1)));
  });
}

TEST_P(TransportSuite, NothingIsHeardAfterOnesOwnClose) {
  with_workers(2, [](Workers& workers) {
    auto sender = workers.thread([&] { (void)send_for_a_while(workers[0], 1, 0, 2000); });
    ASSERT_TRUE(workers.wait_until(1, so_many(10)));

    workers[1].close();
    const size_t heard = workers.heard(1).snapshot().size();
    sender.reset();

    EXPECT_EQ(workers.heard(1).snapshot().size(), heard);
    EXPECT_EQ(workers.heard(1).losses(), 0u);
  });
}

TEST_P(TransportSuite, CloseWithWorkInFlightReturns) {
  with_workers(3, [](Workers& workers) {
    std::vector<std::unique_ptr<base::Thread>> senders;
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        senders.push_back(workers.thread([&, from, to] { (void)send_for_a_while(workers[from], to, 0, 300); }));
      }
    }
    ASSERT_TRUE(workers.wait_until(0, so_many(10)));

    for (int rank = 0; rank < 3; ++rank) workers[rank].close();

    senders.clear();  // Joins: none of them hangs.
  });
}

TEST_P(TransportSuite, WaitingSenderHearsOfItsOwnClose) {
  with_workers(
      2, [](net::FabricOptions& options) { options.queue_bytes = 1 << 20; },
      [](Workers& workers) {
        auto reading = std::make_shared<Latch>(workers.runtime());
        Latch begun(workers.runtime());
        workers.heard(1).at_message = [reading](net::Peer, const wire::Message&) { reading->wait(); };
        bool closed = false;
        auto sender = workers.thread([&] {
          try {
            for (uint64_t i = 0; i < 400; ++i) {
              if (i == 3) begun.release();
              workers[0].send(Rank(1), filled(i, (256 << 10) / 4));
            }
          } catch (const Closed&) {
            closed = true;
          }
        });
        begun.wait();

        workers[0].close();
        sender.reset();
        reading->release();

        EXPECT_TRUE(closed);
      });
}

TEST_P(TransportSuite, RestartedPeerIsANewIncarnationForBothSides) {
  with_workers(2, [](Workers& workers) {
    const auto first = workers[0].send(Rank(1), tagged(1));
    ASSERT_TRUE(workers.wait_until(1, so_many(1)));

    workers.restart(1);
    workers[1].send(Rank(0), tagged(2));
    ASSERT_TRUE(workers.wait_until(0, so_many(1)));
    ASSERT_TRUE(workers.wait_until(0, lost_once(1)));
    const auto second = workers[0].send(Rank(1), tagged(3));

    EXPECT_GT(second, first);
    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    EXPECT_EQ(workers.heard(1).snapshot().back().message.tag, 3u);
    const auto history = workers.heard(0).snapshot();
    for (const auto& heard : history) {
      EXPECT_EQ(heard.peer.incarnation, heard.what == What::Lost ? first : second);
    }
    EXPECT_EQ(workers.heard(1).losses(), 0u) << "the new life has lost nobody";
  });
}

TEST_P(TransportSuite, RestartedPeerIsFoundEvenIfItKeepsSilent) {
  with_workers(2, [](Workers& workers) {
    workers[0].send(Rank(1), tagged(1));
    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    workers.restart(1);
    ASSERT_TRUE(workers.wait_until(0, lost_once(1)));

    // Some may still go where it was, and be lost, until the news of where it is has come.
    for (int tries = 0; tries < 1000 && workers.heard(1).messages() == 0; ++tries) {
      try {
        workers[0].send(Rank(1), tagged(2));
      } catch (const PeerLost&) {
      }
      const auto moment = workers[1].driver().make_waiter();
      workers[1].driver().wait(*moment, workers.runtime().now() + std::chrono::milliseconds(10));
    }

    EXPECT_GE(workers.heard(1).messages(), 1u);
  });
}

TEST_P(TransportSuite, EveryMessageArrivesOnceOrItsIncarnationIsLost) {
  with_workers(2, [](Workers& workers) {
    SentTags sent;
    auto sender = workers.thread([&] { sent = send_for_a_while(workers[0], 1, 0, 3000); });
    constexpr uint64_t after_all = 1'000'000;
    Tags arrived;
    for (int life = 0; life < 3; ++life) {
      ASSERT_TRUE(life > 0 || workers.wait_until(1, so_many(50)));
      workers[1].close();
      const auto tags = tags_of(workers.heard(1).snapshot());
      arrived.insert(tags.begin(), tags.end());
      workers.restart(1);
      workers[1].send(Rank(0), tagged(life));  // Tells worker 0, at the latest, that there is a new life.
      ASSERT_TRUE(workers.wait_until(0, so_many(life + 1)));
    }
    sender.reset();
    const auto current = workers[0].send(Rank(1), tagged(after_all));
    std::set<uint64_t> due{after_all};
    std::set<Incarnation> ended;
    for (const auto& [tag, incarnation] : sent) {
      if (incarnation == current) {
        due.insert(tag);
      } else {
        ended.insert(incarnation);
      }
    }
    ASSERT_TRUE(workers.wait_until(1, [&](const Recorder& heard) { return includes(tags_of(heard.history()), due); }));
    ASSERT_TRUE(
        workers.wait_until(0, [&](const Recorder& heard) { return includes(lost_in(heard.history()), ended); }));

    const auto last = tags_of(workers.heard(1).snapshot());
    arrived.insert(last.begin(), last.end());
    for (const auto& [tag, incarnation] : sent) {
      EXPECT_LE(arrived.count(tag), 1u);
      EXPECT_TRUE(arrived.count(tag) == 1 || incarnation != current) << "tag " << tag;
    }
    std::set<Incarnation> lost;
    for (const auto& heard : workers.heard(0).snapshot()) {
      EXPECT_FALSE(lost.contains(heard.peer.incarnation)) << "nothing after the end, and the end once";
      if (heard.what == What::Lost) lost.insert(heard.peer.incarnation);
    }
  });
}

}  // namespace
}  // namespace farad::test
