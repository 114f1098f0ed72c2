// A reader that does not read: senders wait, memory stays bounded, nothing is lost.

#include <farad/error.h>

#include <set>

#include "suites/transport_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using base::Rank;

constexpr int64_t floats = (256 << 10) / 4;
constexpr size_t message_bytes = 256 << 10;

void small_queue(net::FabricOptions& options) { options.queue_bytes = 1 << 20; }

TEST_P(TransportSuite, SenderToAReaderThatDoesNotReadIsHeldBackSoon) {
  with_workers(2, small_queue, [](Workers& workers) {
    auto reading = std::make_shared<Latch>(workers.runtime());
    workers.heard(1).at_message = [reading](net::Peer, const wire::Message&) { reading->wait(); };

    uint64_t accepted = 0;
    EXPECT_THROW(
        {
          while (accepted < 400) {
            workers[0].send(Rank(1), filled(accepted, floats), workers.runtime().now() + 300ms);
            ++accepted;
          }
        },
        Timeout);
    // Our queue and the peer's, and what rings and the system's sockets take.
    EXPECT_LT(accepted * message_bytes, size_t{32} << 20);
    reading->release();

    ASSERT_TRUE(workers.wait_until(1, [&](const Recorder& heard) { return heard.messages() == accepted; }));
    workers[0].send(Rank(1), filled(accepted, floats));
    ASSERT_TRUE(workers.wait_until(1, [&](const Recorder& heard) { return heard.messages() == accepted + 1; }));
    std::set<uint64_t> tags;
    for (const auto& heard : workers.heard(1).snapshot()) {
      EXPECT_TRUE(is_filled(heard.message, floats));
      tags.insert(heard.message.tag);
    }
    EXPECT_EQ(tags.size(), accepted + 1) << "the message that timed out was not sent, every other one was, once";
  });
}

TEST_P(TransportSuite, QueueForNothingStillLetsOneMessageThroughAtATime) {
  const auto no_queue = [](net::FabricOptions& options) { options.queue_bytes = 0; };
  with_workers(2, no_queue, [](Workers& workers) {
    for (uint64_t tag = 1; tag <= 3; ++tag) {
      for (uint16_t to : {0, 1}) workers[0].send(Rank(to), filled(tag, floats), workers.runtime().now() + 20s);
    }
    for (uint16_t at : {0, 1}) {
      EXPECT_TRUE(workers.wait_until(at, [](const Recorder& heard) { return heard.messages() == 3; }));
    }
  });
}

TEST_P(TransportSuite, SendersThatWaitGoOnWhenThereIsRoom) {
  with_workers(2, small_queue, [](Workers& workers) {
    auto reading = std::make_shared<Latch>(workers.runtime());
    workers.heard(1).at_message = [reading](net::Peer, const wire::Message&) { reading->wait(); };
    workers.heard(1).keep_messages = false;
    constexpr uint64_t threads = 4, each = 60;
    std::vector<std::unique_ptr<base::Thread>> senders;
    for (uint64_t thread = 0; thread < threads; ++thread) {
      senders.push_back(workers.thread([&workers, thread] {
        for (uint64_t i = 0; i < each; ++i) workers[0].send(Rank(1), filled(thread * each + i, floats));
      }));
    }
    reading->release();

    EXPECT_TRUE(workers.wait_until(1, [](const Recorder& heard) { return heard.messages() == threads * each; }));
  });
}

TEST_P(TransportSuite, AnswersPassAFullQueue) {
  with_workers(2, small_queue, [](Workers& workers) {
    auto reading = std::make_shared<Latch>(workers.runtime());
    workers.heard(1).at_message = [reading](net::Peer, const wire::Message&) { reading->wait(); };
    EXPECT_THROW(
        {
          for (int i = 0; i < 400; ++i) workers[0].send(Rank(1), filled(0, floats), workers.runtime().now() + 300ms);
        },
        Timeout);

    EXPECT_TRUE(workers[0].post(Rank(1), tagged(12345)).status.ok());
    reading->release();

    EXPECT_TRUE(workers.wait_until(1, [](const Recorder& heard) {
      return !heard.history().empty() && heard.history().back().message.tag == 12345;
    }));
  });
}

TEST_P(TransportSuite, MessagesThatAreEachMoreThanMayWaitGoOneByOne) {
  constexpr int64_t large_floats = (4 << 20) / 4;
  with_workers(2, small_queue, [](Workers& workers) {
    auto reading = std::make_shared<Latch>(workers.runtime());
    workers.heard(1).at_message = [reading](net::Peer, const wire::Message&) { reading->wait(); };

    uint64_t accepted = 0;
    EXPECT_THROW(
        {
          while (accepted < 50) {
            workers[0].send(Rank(1), filled(accepted, large_floats), workers.runtime().now() + 300ms);
            ++accepted;
          }
        },
        Timeout);
    EXPECT_GE(accepted, 1u) << "where nothing waits any message may go";
    EXPECT_LE(accepted, 8u) << "in our queue, on the way and in the peer's";
    reading->release();

    workers[0].send(Rank(1), filled(accepted, large_floats));
    ASSERT_TRUE(workers.wait_until(1, [&](const Recorder& heard) { return heard.messages() == accepted + 1; }));
    for (const auto& heard : workers.heard(1).snapshot()) EXPECT_TRUE(is_filled(heard.message, large_floats));
  });
}

// With nothing else on the line, so that nobody is woken by chance: no answers, no signs of life.
void expect_room_for_all(Workers& workers, size_t each, int64_t floats) {
  constexpr size_t senders = 4;
  workers.heard(1).keep_messages = false;
  std::vector<std::unique_ptr<base::Thread>> threads;
  for (size_t i = 0; i < senders; ++i) {
    threads.push_back(workers.thread([&] {
      for (uint64_t tag = 0; tag < each; ++tag) workers[0].send(Rank(1), filled(tag, floats));
    }));
  }
  const bool all = workers.wait_until(1, [=](const Recorder& heard) { return heard.messages() >= senders * each; });

  EXPECT_TRUE(all) << workers.heard(1).messages() << " came";
  if (!all) workers[0].close();  // Lets go of those who still wait.
  threads.clear();
}

Workers::Tweak quiet_with_room_for(int64_t floats) {
  return [floats](net::FabricOptions& options) {
    options.lost_after = std::chrono::milliseconds(0);
    options.queue_bytes = static_cast<size_t>(floats) * sizeof(float) + 1000;
  };
}

TEST_P(TransportSuite, SendersThatWaitForEachOthersRoomAllGetIt) {
  constexpr int64_t floats = 10'000;
  with_workers(2, quiet_with_room_for(floats), [](Workers& workers) { expect_room_for_all(workers, 400, floats); });
}

TEST_P(TransportSuite, SendersOfLargeTensorsThatWaitForEachOthersRoomAllGetIt) {
  constexpr int64_t floats = 100'000;
  with_workers(2, quiet_with_room_for(floats), [](Workers& workers) { expect_room_for_all(workers, 100, floats); });
}

TEST_P(TransportSuite, LongQueueIsWrittenToItsEndWithoutFurtherCause) {
  constexpr size_t messages = 1500;
  constexpr int64_t floats = 16 << 10;
  const auto quiet = [](net::FabricOptions& options) { options.lost_after = std::chrono::milliseconds(0); };
  with_workers(2, quiet, [](Workers& workers) {
    for (size_t tag = 0; tag < messages; ++tag) {
      ASSERT_TRUE(workers[0].post(Rank(1), filled(tag, floats)).status.ok());
    }

    EXPECT_TRUE(workers.wait_until(1, [](const Recorder& heard) { return heard.messages() >= messages; }))
        << workers.heard(1).messages() << " came";
  });
}

}  // namespace
}  // namespace farad::test
