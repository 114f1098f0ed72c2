#include "net/tcp/tcp_transport.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tcp_node.h"

namespace farad::net {
namespace {

using base::Code;
using namespace std::chrono_literals;

/// Two workers that know each other and run.
struct Pair {
  explicit Pair(TcpOptions options = {}) : a(0, options), b(1, options) {
    a.knows(b);
    b.knows(a);
    a.start();
    b.start();
  }
  TcpNode a, b;
};

TEST(Tcp, MessageArrivesAsItWasSent) {
  Pair pair;
  wire::Message message;
  message.kind = 7;
  message.tag = 1234567890123;
  message.body = {'b', 'o', 'd', 'y'};
  message.tensors = {at::full({3, 5}, 2.5), at::zeros({0}), at::ones({4, 4}).t()};
  const Sent sent = pair.a.transport().send(pair.b.rank(), message, false);
  ASSERT_TRUE(sent.status.ok()) << sent.status.message();
  ASSERT_TRUE(pair.b.until([](auto& r) { return !r.heard.empty(); }));

  const auto [from, got] = pair.b.told().heard[0];
  EXPECT_EQ(from.rank, pair.a.rank());
  EXPECT_EQ(got.kind, 7);
  EXPECT_EQ(got.tag, 1234567890123u);
  EXPECT_EQ(std::string(got.body.begin(), got.body.end()), "body");
  ASSERT_EQ(got.tensors.size(), 3u);
  EXPECT_TRUE(got.tensors[0].equal(at::full({3, 5}, 2.5)));
  EXPECT_EQ(got.tensors[1].numel(), 0);
  EXPECT_TRUE(got.tensors[2].equal(at::ones({4, 4})));
}

TEST(Tcp, AnswersComeBackOnTheSameConnection) {
  Pair pair;
  pair.b.echo();
  const Sent sent = pair.a.say(pair.b, 1);
  ASSERT_TRUE(pair.a.until([](auto& r) { return !r.heard.empty(); }));
  EXPECT_EQ(pair.a.told().heard[0].from, (Peer{pair.b.rank(), sent.incarnation}));
  EXPECT_TRUE(pair.a.told().losses.empty());
}

TEST(Tcp, LargeTensorsCrossEachOther) {
  Pair pair;
  const int64_t elements = (64 << 20) / 4;  // Far beyond what sockets hold.
  ASSERT_TRUE(pair.a.say(pair.b, 1, at::full({elements}, 1.f)).status.ok());
  ASSERT_TRUE(pair.b.say(pair.a, 2, at::full({elements}, 2.f)).status.ok());
  ASSERT_TRUE(pair.a.until([](auto& r) { return !r.heard.empty(); }));
  ASSERT_TRUE(pair.b.until([](auto& r) { return !r.heard.empty(); }));
  EXPECT_TRUE(pair.b.told().heard[0].message.tensors[0].equal(at::full({elements}, 1.f)));
  EXPECT_TRUE(pair.a.told().heard[0].message.tensors[0].equal(at::full({elements}, 2.f)));
}

TEST(Tcp, ManyThreadsManyMessagesEachExactlyOnce) {
  TcpOptions options;
  options.queue_bytes = size_t{1} << 30;
  Pair pair(options);
  constexpr uint64_t threads = 4, each = 500;
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < threads; ++t) {
    senders.emplace_back([&, t] {
      for (uint64_t i = 0; i < each; ++i) {
        const uint64_t tag = t * each + i;
        const Sent sent = i % 50 ? pair.a.say(pair.b, tag) : pair.a.say(pair.b, tag, at::full({50'000}, float(tag)));
        ASSERT_TRUE(sent.status.ok()) << sent.status.message();
      }
    });
  }
  for (auto& sender : senders) sender.join();
  ASSERT_TRUE(pair.b.until([&](auto& r) { return r.heard.size() >= threads * each; }, 60s));
  std::set<uint64_t> tags;
  const auto told = pair.b.told();
  for (const auto& [from, message] : told.heard) {
    EXPECT_TRUE(tags.insert(message.tag).second) << message.tag << " came twice";
    for (const at::Tensor& tensor : message.tensors) EXPECT_TRUE(tensor.equal(at::full({50'000}, float(message.tag))));
  }
  EXPECT_EQ(tags.size(), threads * each);
}

TEST(Tcp, SecretIsNeededToBeHeard) {
  TcpOptions ours, theirs;
  ours.secret = Secret("ours");
  ours.bind_host = "127.0.0.1";
  theirs.secret = Secret("theirs");
  theirs.bind_host = "127.0.0.1";
  TcpNode member(0, ours), friendly(1, ours), stranger(2, theirs), naive(3);
  for (TcpNode* node : {&member, &friendly, &stranger, &naive}) {
    node->knows(member);
    node->start();
  }
  (void)stranger.say(member, 2);
  (void)naive.say(member, 3);
  (void)friendly.say(member, 1);
  for (TcpNode* outsider : {&stranger, &naive}) {
    ASSERT_TRUE(outsider->until([](auto& r) { return !r.losses.empty(); }));
    EXPECT_EQ(outsider->told().losses[0].why.code(), Code::Denied) << outsider->told().losses[0].why.message();
  }
  ASSERT_TRUE(member.until([](auto& r) { return !r.heard.empty(); }));
  EXPECT_EQ(member.told().heard.size(), 1u);
  EXPECT_EQ(member.told().heard[0].message.tag, 1u);
}

TEST(Tcp, WithoutASecretItListensOnLoopbackOnly) {
  TcpOptions options;
  options.bind_host = "0.0.0.0";
  EXPECT_THROW(TcpNode(0, options), c10::Error);
  EXPECT_EQ(TcpNode(0).transport().address().rfind("127.0.0.1:", 0), 0u);
}

TEST(Tcp, NobodyThereLosesTheIncarnationAndTheNextSendTriesAnew) {
  TcpNode a(0);
  auto gone = std::make_unique<TcpNode>(1);
  a.knows(*gone);
  gone->close();  // The port is free, and nobody listens.
  a.start();
  const Sent first = a.say(*gone, 1);
  ASSERT_TRUE(first.status.ok());
  ASSERT_TRUE(a.until([](auto& r) { return r.losses.size() == 1; }));
  EXPECT_EQ(a.told().losses[0].peer, (Peer{gone->rank(), first.incarnation}));
  EXPECT_EQ(a.told().losses[0].why.code(), Code::PeerLost);

  const Sent second = a.say(*gone, 2);
  EXPECT_GT(second.incarnation, first.incarnation);
  ASSERT_TRUE(a.until([](auto& r) { return r.losses.size() == 2; }));
  EXPECT_EQ(a.told().losses[1].peer.incarnation, second.incarnation);
}

TEST(Tcp, UnknownPeerIsTheCallersMistakeAndLeavesTheMessageAlone) {
  TcpNode a(0);
  wire::Message message;
  message.body = {'x'};
  EXPECT_EQ(a.transport().send(base::Rank(9), message, false).status.code(), Code::Invalid);
  EXPECT_EQ(message.body.size(), 1u);
}

TEST(Tcp, WrongWorkerAtTheAddressIsNotSpokenTo) {
  TcpNode a(0), b(1), other(2);
  a.transport().set_address(b.rank(), other.transport().address());
  a.start();
  other.start();
  ASSERT_TRUE(a.say(b, 1).status.ok());
  ASSERT_TRUE(a.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_NE(a.told().losses[0].why.message().find("rank 2"), std::string::npos) << a.told().losses[0].why.message();
  EXPECT_TRUE(other.told().heard.empty());
}

TEST(Tcp, RestartedPeerIsANewIncarnationAndItsNewAddressIsLearnt) {
  TcpNode a(0);
  a.start();
  auto b = std::make_unique<TcpNode>(1);
  a.knows(*b);
  b->start();
  const Sent before = a.say(*b, 1);
  ASSERT_TRUE(b->until([](auto& r) { return r.heard.size() == 1; }));
  b.reset();
  ASSERT_TRUE(a.until([](auto& r) { return r.losses.size() == 1; }));
  EXPECT_EQ(a.told().losses[0].peer.incarnation, before.incarnation);

  b = std::make_unique<TcpNode>(1);  // On another port, which nobody tells a.
  b->knows(a);
  b->start();
  ASSERT_TRUE(b->say(a, 2).status.ok());
  ASSERT_TRUE(a.until([](auto& r) { return r.heard.size() == 1; }));
  EXPECT_GT(a.told().heard[0].from.incarnation, before.incarnation);
  ASSERT_TRUE(a.say(*b, 3).status.ok());
  ASSERT_TRUE(b->until([](auto& r) { return r.heard.size() == 1; }));
  b.reset();
  ASSERT_TRUE(a.until([](auto& r) { return r.losses.size() == 2; }));
}

TEST(Tcp, SimultaneousDialsLoseAndDoubleNothing) {
  constexpr int rounds = 20;
  for (int round = 0; round < rounds; ++round) {
    TcpNode a(0), b(1);
    a.knows(b);
    b.knows(a);
    a.start();
    b.start();
    std::atomic<int> ready{0};
    const auto burst = [&ready](TcpNode& from, TcpNode& to) {
      ++ready;
      while (ready < 2) {
      }
      for (uint64_t tag = 0; tag < 10; ++tag) ASSERT_TRUE(from.say(to, tag).status.ok());
    };
    std::thread other([&] { burst(b, a); });
    burst(a, b);
    other.join();
    for (TcpNode* node : {&a, &b}) {
      ASSERT_TRUE(node->until([](auto& r) { return r.heard.size() >= 10; })) << "round " << round;
    }
    for (TcpNode* node : {&a, &b}) {
      node->close();
      EXPECT_EQ(node->told().heard.size(), 10u);
      std::set<uint64_t> tags;
      const auto told = node->told();
      for (const auto& [from, message] : told.heard) tags.insert(message.tag);
      EXPECT_EQ(tags.size(), 10u);
    }
    EXPECT_TRUE(a.told().losses.empty());
    // Closing a is the only loss b may have seen.
    EXPECT_LE(b.told().losses.size(), 1u);
  }
}

TEST(Tcp, SlowReaderBoundsWhatASenderQueues) {
  TcpOptions options;
  options.queue_bytes = 4 << 20;
  options.lost_after = 0ms;
  TcpNode a(0, options), b(1, options);  // b does not read yet.
  a.knows(b);
  a.start();
  const auto megabyte = [] { return at::ones({1 << 18}); };
  uint64_t sent = 0;
  Sent last;
  while (sent < 1000 && (last = a.say(b, sent, megabyte())).status.ok()) ++sent;
  EXPECT_EQ(last.status.code(), Code::Busy);
  EXPECT_LT(sent, 100u) << "the queue, and what the kernel keeps in its sockets";

  wire::Message answer;
  answer.tag = 4711;
  answer.body.assign(1 << 20, 'x');
  EXPECT_TRUE(a.transport().send(b.rank(), answer, true).status.ok()) << "answers are never refused";

  b.start();
  ASSERT_TRUE(b.until([&](auto& r) { return r.heard.size() == sent + 1; }));
  EXPECT_TRUE(a.say(b, sent, megabyte()).status.ok());
}

TEST(Tcp, MessageLargerThanTheQueueGoesIntoAnEmptyOne) {
  TcpOptions options;
  options.queue_bytes = 1000;
  Pair pair(options);
  ASSERT_TRUE(pair.a.say(pair.b, 1, at::ones({1 << 20})).status.ok());
  ASSERT_TRUE(pair.b.until([](auto& r) { return r.heard.size() == 1; }));
}

TEST(Tcp, TensorChangedWhileItIsWrittenIsTakenBack) {
  TcpOptions options;
  options.lost_after = 0ms;
  options.queue_bytes = size_t{1} << 30;
  TcpNode a(0, options), b(1, options);
  a.knows(b);
  a.start();
  at::Tensor tensor = at::ones({(64 << 20) / 4});
  const Sent sent = a.say(b, 5, tensor);
  ASSERT_TRUE(sent.status.ok());
  tensor.add_(1);  // b reads nothing yet, so most of it is not written.
  ASSERT_TRUE(a.say(b, 6).status.ok());
  b.start();

  ASSERT_TRUE(a.until([](auto& r) { return !r.taken_back.empty(); }));
  EXPECT_EQ(a.told().taken_back[0].to, (Peer{b.rank(), sent.incarnation}));
  EXPECT_EQ(a.told().taken_back[0].message.tag, 5u);
  EXPECT_EQ(a.told().taken_back[0].why.code(), Code::Invalid);
  ASSERT_TRUE(b.until([](auto& r) { return !r.heard.empty(); }));
  b.close();
  ASSERT_EQ(b.told().heard.size(), 1u) << "the one that was taken back must not be delivered";
  EXPECT_EQ(b.told().heard[0].message.tag, 6u);
}

TEST(Tcp, MessageOverTheLimitsIsRefusedHereAndLeftAlone) {
  TcpOptions options;
  options.limits.body_bytes = 100;
  Pair pair(options);
  wire::Message message;
  message.body.assign(101, 'x');
  EXPECT_EQ(pair.a.transport().send(pair.b.rank(), message, false).status.code(), Code::Invalid);
  EXPECT_EQ(message.body.size(), 101u);
  EXPECT_TRUE(pair.a.told().losses.empty());
}

TEST(Tcp, ClosedTransportRefusesAndTellsNothing) {
  Pair pair;
  ASSERT_TRUE(pair.a.say(pair.b, 1).status.ok());
  ASSERT_TRUE(pair.b.until([](auto& r) { return r.heard.size() == 1; }));
  ASSERT_TRUE(pair.a.say(pair.b, 2, at::ones({16 << 20})).status.ok());  // In flight.
  pair.a.close();
  EXPECT_EQ(pair.a.say(pair.b, 3).status.code(), Code::Closed);
  EXPECT_TRUE(pair.a.told().losses.empty());
  ASSERT_TRUE(pair.b.until([](auto& r) { return r.losses.size() == 1; }));
}

}  // namespace
}  // namespace farad::net
