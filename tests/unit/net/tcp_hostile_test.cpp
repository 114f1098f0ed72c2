#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tcp_intruder.h"
#include "tcp_node.h"
#include "wire/frame.h"

namespace farad::net {
namespace {

using base::Code;
using tcp::Hello;
using namespace std::chrono_literals;

struct Victim {
  explicit Victim(TcpOptions options = {}) : node(0, options), friendly(1, options) {
    friendly.knows(node);
    node.start();
    friendly.start();
  }
  std::string address() { return node.transport().address(); }
  /// Whether it still does its work.
  bool serves() {
    const size_t before = node.told().heard.size();
    return friendly.say(node, 1).status.ok() && node.until([&](auto& r) { return r.heard.size() > before; });
  }
  TcpNode node, friendly;
};

TEST(TcpHostile, GarbageAtTheListenerIsDroppedAndNothingElseHappens) {
  Victim victim;
  Intruder intruder(victim.address());
  intruder.say("GET / HTTP/1.1\r\nHost: farad\r\n\r\n");
  EXPECT_TRUE(intruder.is_dropped());
  EXPECT_TRUE(victim.serves());
  EXPECT_TRUE(victim.node.told().losses.empty());
}

TEST(TcpHostile, SilentStrangerIsDroppedInTimeAndHoldsUpNobody) {
  TcpOptions options;
  options.greet_within = 300ms;
  Victim victim(options);
  Intruder intruder(victim.address());
  EXPECT_TRUE(victim.serves()) << "while the stranger is still connected";
  EXPECT_TRUE(intruder.is_dropped());
}

TEST(TcpHostile, HandshakeWithoutAHelloIsDroppedInTime) {
  TcpOptions options;
  options.greet_within = 300ms;
  Victim victim(options);
  Intruder intruder(victim.address());
  ASSERT_TRUE(intruder.shake_hands(Handshake::Role::Connector));
  EXPECT_TRUE(intruder.is_dropped());
  EXPECT_TRUE(victim.serves());
}

TEST(TcpHostile, CrowdOfSilentStrangersKeepsNoMemberOut) {
  TcpOptions options;
  options.greet_within = 60s;
  Victim victim(options);
  std::vector<std::unique_ptr<Intruder>> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(std::make_unique<Intruder>(victim.address()));
  EXPECT_TRUE(victim.serves());
  EXPECT_TRUE(crowd.front()->is_dropped()) << "the oldest makes room";
}

TEST(TcpHostile, OneWithAWrongSecretIsDroppedAndLogged) {
  TcpOptions options;
  options.secret = Secret("right");
  options.bind_host = "127.0.0.1";
  Victim victim(options);
  Intruder intruder(victim.address());
  EXPECT_FALSE(intruder.shake_hands(Handshake::Role::Connector, Secret("wrong")));
  EXPECT_TRUE(intruder.is_dropped());
  ASSERT_TRUE(victim.node.until([](auto& r) { return !r.lines.empty(); }));
  EXPECT_TRUE(victim.serves());
  const auto told = victim.node.told();
  EXPECT_TRUE(told.losses.empty());
  ASSERT_EQ(told.lines.size(), 1u);
  EXPECT_NE(told.lines[0].find("[tcp] dropped a connection from 127.0.0.1:"), std::string::npos) << told.lines[0];
  EXPECT_NE(told.lines[0].find("different secrets"), std::string::npos) << told.lines[0];
}

TEST(TcpHostile, HelloOfNonsenseIsDropped) {
  Victim victim;
  Intruder intruder(victim.address());
  ASSERT_TRUE(intruder.shake_hands(Handshake::Role::Connector));
  intruder.say(std::string(Hello::bytes, '\xee'));
  EXPECT_TRUE(intruder.is_dropped());
  EXPECT_TRUE(victim.serves());
}

TEST(TcpHostile, BadFrameEndsThatConnectionOnly) {
  Victim victim;
  ASSERT_TRUE(victim.serves());
  Intruder intruder(victim.address());
  ASSERT_EQ(intruder.join(base::Rank(7), base::Rank(0), 1, 1), Hello::Answer::Welcome);
  intruder.say(std::string(1000, '\xee'));
  EXPECT_TRUE(intruder.is_dropped());
  ASSERT_TRUE(victim.node.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_EQ(victim.node.told().losses[0].peer.rank, base::Rank(7));
  EXPECT_EQ(victim.node.told().losses[0].why.code(), Code::Protocol);
  EXPECT_TRUE(victim.serves());
  EXPECT_EQ(victim.node.told().losses.size(), 1u);
}

TEST(TcpHostile, FrameCutOffInTheMiddleIsLostNotDelivered) {
  Victim victim;
  {
    Intruder intruder(victim.address());
    ASSERT_EQ(intruder.join(base::Rank(7), base::Rank(0), 1, 1), Hello::Answer::Welcome);
    wire::frame::Header header;
    header.body_bytes = 100;
    char bytes[wire::frame::header_bytes];
    wire::frame::write(header, bytes);
    intruder.say({bytes, sizeof bytes});
    intruder.say("only half of it");
  }
  ASSERT_TRUE(victim.node.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_EQ(victim.node.told().losses[0].why.code(), Code::PeerLost);
  EXPECT_TRUE(victim.node.told().heard.empty());
}

TEST(TcpHostile, LateHelloOfAnEarlierDialDoesNotReplaceTheNewer) {
  Victim victim;
  Intruder newer(victim.address()), older(victim.address());
  ASSERT_EQ(newer.join(base::Rank(7), base::Rank(0), 5, 2), Hello::Answer::Welcome);
  EXPECT_EQ(older.join(base::Rank(7), base::Rank(0), 5, 1), Hello::Answer::Stale);
  EXPECT_TRUE(victim.node.told().losses.empty());
}

TEST(TcpHostile, NewProcessOfAPeerReplacesTheOld) {
  Victim victim;
  Intruder before(victim.address()), after(victim.address());
  ASSERT_EQ(before.join(base::Rank(7), base::Rank(0), 5, 9), Hello::Answer::Welcome);
  ASSERT_EQ(after.join(base::Rank(7), base::Rank(0), 6, 1), Hello::Answer::Welcome);
  EXPECT_TRUE(before.is_dropped());
  ASSERT_TRUE(victim.node.until([](auto& r) { return r.losses.size() == 1; }));
  EXPECT_EQ(victim.node.told().losses[0].peer.incarnation, base::Incarnation(1));
}

TEST(TcpHostile, WhoeverClaimsToBeUsIsAStranger) {
  Victim victim;
  Intruder intruder(victim.address());
  EXPECT_EQ(intruder.join(base::Rank(0), base::Rank(0), 1, 1), Hello::Answer::Stranger);
}

TEST(TcpHostile, RankBeyondTheGroupIsAStranger) {
  TcpOptions options;
  options.size = 2;
  Victim victim(options);
  Intruder intruder(victim.address());
  EXPECT_EQ(intruder.join(base::Rank(2), base::Rank(0), 1, 1), Hello::Answer::Stranger);
  EXPECT_TRUE(victim.serves());
}

TEST(TcpLiveness, SilentPeerIsLostAfterAWhile) {
  TcpOptions options;
  options.lost_after = 300ms;
  options.greet_within = 10s;
  Victim victim(options);
  Intruder mute(victim.address());
  ASSERT_EQ(mute.join(base::Rank(7), base::Rank(0), 1, 1), Hello::Answer::Welcome);
  ASSERT_TRUE(victim.node.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_NE(victim.node.told().losses[0].why.message().find("nothing heard"), std::string::npos);
}

TEST(TcpLiveness, PeerThatIsStoppedBeforeTheFirstContactIsLostInTime) {
  TcpOptions options;
  options.lost_after = 300ms;
  TcpNode node(0, options);
  node.start();
  FalseListener stopped;  // The system takes the call, and nobody answers it.
  node.transport().set_address(base::Rank(7), stopped.address());
  wire::Message message;
  const auto before = base::Clock::now();
  ASSERT_TRUE(node.transport().send(base::Rank(7), message, false).status.ok());
  ASSERT_TRUE(node.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_LE(base::Clock::now() - before, 3 * options.lost_after);
}

TEST(TcpLiveness, IdlePeersGiveSignsOfLife) {
  TcpOptions options;
  options.lost_after = 200ms;
  options.greet_within = 10s;
  TcpNode a(0, options), b(1, options);
  a.knows(b);
  a.start();
  b.start();
  ASSERT_TRUE(a.say(b, 1).status.ok());
  ASSERT_TRUE(b.until([](auto& r) { return r.heard.size() == 1; }));
  EXPECT_FALSE(a.until([](auto& r) { return !r.losses.empty(); }, options.lost_after * 5));
  EXPECT_TRUE(b.told().losses.empty());
  EXPECT_EQ(b.told().heard.size(), 1u) << "signs of life are not delivered";
}

TEST(TcpLiveness, PeerIsNotLostWhileItsWordsLieUnread) {
  TcpOptions options;
  options.lost_after = 200ms;
  options.greet_within = 10s;
  TcpNode busy(0, options), b(1, options);  // busy's driver does other things for a while.
  b.knows(busy);
  b.start();
  ASSERT_TRUE(b.say(busy, 1).status.ok());
  EXPECT_FALSE(b.until([](auto& r) { return !r.losses.empty(); }, options.lost_after * 5));
  busy.start();
  ASSERT_TRUE(busy.until([](auto& r) { return r.heard.size() == 1; }));
  EXPECT_TRUE(busy.told().losses.empty());
}

}  // namespace
}  // namespace farad::net
