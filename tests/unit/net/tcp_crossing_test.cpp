// Both ends dial at once. One of them is played by the test, so that every order of events can be had at will.

#include <gtest/gtest.h>

#include "tcp_intruder.h"
#include "tcp_node.h"

namespace farad::net {
namespace {

using base::Rank;
using tcp::Hello;
using namespace std::chrono_literals;

constexpr Rank peer(7);
constexpr auto acceptor = Handshake::Role::Acceptor;

/// A worker that dials the test: it has a message for rank 7.
struct Crossing {
  explicit Crossing(uint16_t rank, TcpOptions options = {}) : node(rank, options) {
    node.transport().set_address(peer, listener.address());
    node.start();
    wire::Message message;
    message.tag = 1;
    sent = node.transport().send(peer, message, false);
    EXPECT_TRUE(sent.status.ok());
  }
  Intruder dial() { return Intruder(node.transport().address()); }
  static bool brings_the_message(Intruder& connection) { return connection.hear(4) == "FARD"; }

  FalseListener listener;
  TcpNode node;
  Sent sent;
};

TEST(TcpCrossing, DialThatIsNotYetIntroducedGivesWay) {
  for (const uint16_t rank : {0, 9}) {
    Crossing crossing(rank);
    Intruder theirs = crossing.listener.accept();  // And says nothing.
    Intruder ours = crossing.dial();
    EXPECT_EQ(ours.join(peer, Rank(rank), 1, 1), Hello::Answer::Welcome);
    EXPECT_TRUE(Crossing::brings_the_message(ours));
    EXPECT_TRUE(theirs.is_dropped());
    EXPECT_TRUE(crossing.node.told().losses.empty());
  }
}

TEST(TcpCrossing, LowerRankInsistsOnItsOwnDial) {
  Crossing crossing(0);
  Intruder theirs = crossing.listener.accept();
  ASSERT_TRUE(theirs.shake_hands(acceptor));
  EXPECT_EQ(theirs.hear_hello().to, peer);
  Intruder ours = crossing.dial();
  EXPECT_EQ(ours.join(peer, Rank(0), 1, 1), Hello::Answer::Crossing);
  EXPECT_TRUE(ours.is_dropped());

  theirs.say(Hello{peer, Rank(0), Hello::Answer::Welcome, 1, 1, crossing.listener.address()});
  EXPECT_TRUE(Crossing::brings_the_message(theirs));
  EXPECT_TRUE(crossing.node.told().losses.empty());
}

TEST(TcpCrossing, HigherRankGivesWayOnceItsOwnDialIsRefused) {
  Crossing crossing(9);
  Intruder theirs = crossing.listener.accept();
  ASSERT_TRUE(theirs.shake_hands(acceptor));
  theirs.hear_hello();
  Intruder ours = crossing.dial();
  ours.introduce(peer, Rank(9), 1, 1);
  theirs.say(Hello{peer, Rank(9), Hello::Answer::Crossing, 1, 1, crossing.listener.address()});
  EXPECT_EQ(ours.hear_hello().answer, Hello::Answer::Welcome);
  EXPECT_TRUE(Crossing::brings_the_message(ours));
  EXPECT_TRUE(crossing.node.told().losses.empty());
}

TEST(TcpCrossing, LaterDialReplacesOneThatWasWelcomedBefore) {
  // The peer welcomed our dial, lost it, and dialed anew before we had read its welcome.
  Crossing crossing(9);
  Intruder theirs = crossing.listener.accept();
  ASSERT_TRUE(theirs.shake_hands(acceptor));
  theirs.hear_hello();
  Intruder ours = crossing.dial();
  ours.introduce(peer, Rank(9), 1, 1);
  theirs.say(Hello{peer, Rank(9), Hello::Answer::Welcome, 1, 1, crossing.listener.address()});
  EXPECT_TRUE(Crossing::brings_the_message(theirs));
  EXPECT_EQ(ours.hear_hello().answer, Hello::Answer::Welcome);
  ASSERT_TRUE(crossing.node.until([](auto& r) { return r.losses.size() == 1; }));
  EXPECT_EQ(crossing.node.told().losses[0].peer, (Peer{peer, crossing.sent.incarnation}));
}

TEST(TcpCrossing, RefusedDialIsLostIfTheOtherNeverComes) {
  TcpOptions options;
  options.greet_within = 300ms;
  Crossing crossing(9, options);
  Intruder theirs = crossing.listener.accept();
  ASSERT_TRUE(theirs.shake_hands(acceptor));
  theirs.hear_hello();
  theirs.say(Hello{peer, Rank(9), Hello::Answer::Crossing, 1, 1, crossing.listener.address()});
  ASSERT_TRUE(crossing.node.until([](auto& r) { return r.losses.size() == 1; }));
  EXPECT_EQ(crossing.node.told().losses[0].peer.incarnation, crossing.sent.incarnation);
}

}  // namespace
}  // namespace farad::net
