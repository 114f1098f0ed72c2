#include "net/trust/handshake.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "net/trust/policy.h"

namespace farad::net {
namespace {

using base::Code;
using base::Status;
using Role = Handshake::Role;
using namespace std::chrono_literals;

const Secret ours("the members know it");
const Secret theirs("somebody else's");
const Secret none;

struct Outcome {
  Status connector, acceptor;
};

/// Carries bytes to and fro, `piece` at a time, until neither has anything to say.
Outcome converse(Handshake& connector, Handshake& acceptor, size_t piece = 1000) {
  Outcome outcome;
  const auto carry = [piece](Handshake& from, Handshake& to, Status& verdict) {
    const std::string bytes = from.take_output();
    for (size_t at = 0; at < bytes.size() && verdict.ok();) {
      size_t consumed = 0;
      verdict = to.feed(std::string_view(bytes).substr(at, piece), consumed);
      if (consumed == 0) break;
      at += consumed;
    }
    return !bytes.empty();
  };
  bool spoke = true;
  while (spoke) {
    spoke = carry(connector, acceptor, outcome.acceptor);
    spoke = carry(acceptor, connector, outcome.connector) || spoke;
  }
  return outcome;
}

Outcome converse(const Secret& connector_has, const Secret& acceptor_has) {
  Handshake connector(Role::Connector, connector_has, "test"), acceptor(Role::Acceptor, acceptor_has, "test");
  Outcome outcome = converse(connector, acceptor);
  EXPECT_EQ(connector.done(), outcome.connector.ok());
  EXPECT_EQ(acceptor.done(), outcome.acceptor.ok());
  return outcome;
}

Status feed(Handshake& handshake, std::string_view bytes) {
  size_t consumed = 0;
  return handshake.feed(bytes, consumed);
}

std::string hello_of(const Secret& secret) { return Handshake(Role::Connector, secret, "test").take_output(); }

TEST(Handshake, MembersOfOneGroupAcceptEachOther) {
  const Outcome outcome = converse(ours, ours);
  EXPECT_TRUE(outcome.connector.ok()) << outcome.connector.message();
  EXPECT_TRUE(outcome.acceptor.ok()) << outcome.acceptor.message();
}

TEST(Handshake, WithoutSecretsVersionsAreStillExchanged) {
  Handshake connector(Role::Connector, none, "test"), acceptor(Role::Acceptor, none, "test");
  EXPECT_FALSE(connector.done());
  EXPECT_FALSE(acceptor.done());
  const Outcome outcome = converse(connector, acceptor);
  EXPECT_TRUE(connector.done() && acceptor.done());
  EXPECT_TRUE(outcome.connector.ok() && outcome.acceptor.ok());
}

TEST(Handshake, BytesMayComeOneByOne) {
  Handshake connector(Role::Connector, ours, "test"), acceptor(Role::Acceptor, ours, "test");
  converse(connector, acceptor, 1);
  EXPECT_TRUE(connector.done() && acceptor.done());
}

TEST(Handshake, AnotherSecretIsDeniedOnBothSides) {
  const Outcome outcome = converse(theirs, ours);
  EXPECT_EQ(outcome.connector.code(), Code::Denied);
  EXPECT_EQ(outcome.acceptor.code(), Code::Denied);
  EXPECT_NE(outcome.connector.message().find("different secrets"), std::string::npos);
  EXPECT_NE(outcome.acceptor.message().find("different secrets"), std::string::npos);
}

TEST(Handshake, OneSidedSecretIsDeniedByNameOnBothSides) {
  for (const bool connector_has : {true, false}) {
    const Outcome outcome = converse(connector_has ? ours : none, connector_has ? none : ours);
    const Status& with = connector_has ? outcome.connector : outcome.acceptor;
    const Status& without = connector_has ? outcome.acceptor : outcome.connector;
    EXPECT_EQ(with.code(), Code::Denied);
    EXPECT_EQ(without.code(), Code::Denied);
    EXPECT_NE(with.message().find("the other side has no secret"), std::string::npos) << with.message();
    EXPECT_NE(without.message().find("we have none"), std::string::npos) << without.message();
  }
}

TEST(Handshake, NothingSentHoldsTheSecret) {
  Handshake connector(Role::Connector, ours, "test"), acceptor(Role::Acceptor, ours, "test");
  std::string said = connector.take_output();
  ASSERT_TRUE(feed(acceptor, said).ok());
  const std::string answer = acceptor.take_output();
  ASSERT_TRUE(feed(connector, answer).ok());
  said += answer + connector.take_output();
  EXPECT_EQ(said.find(ours.bytes()), std::string::npos);
}

TEST(Handshake, ReflectedHelloIsDenied) {
  Handshake connector(Role::Connector, ours, "test");
  EXPECT_EQ(feed(connector, connector.take_output()).code(), Code::Denied);
}

TEST(Handshake, ProofOfOneRoleIsNoneOfTheOther) {
  // The attacker stands between two connections of one victim and hands it its own proof as that of the acceptor.
  Handshake connector(Role::Connector, ours, "test"), acceptor(Role::Acceptor, ours, "test");
  ASSERT_TRUE(feed(acceptor, connector.take_output()).ok());
  ASSERT_TRUE(feed(connector, acceptor.take_output()).ok());
  EXPECT_EQ(feed(connector, connector.take_output()).code(), Code::Denied);
}

TEST(Handshake, ProofOfAnEarlierConnectionIsStale) {
  Handshake first(Role::Connector, ours, "test"), first_acceptor(Role::Acceptor, ours, "test");
  const std::string hello = first.take_output();
  ASSERT_TRUE(feed(first_acceptor, hello).ok());
  ASSERT_TRUE(feed(first, first_acceptor.take_output()).ok());
  const std::string proof = first.take_output();
  ASSERT_TRUE(feed(first_acceptor, proof).ok());

  Handshake second_acceptor(Role::Acceptor, ours, "test");
  ASSERT_TRUE(feed(second_acceptor, hello).ok());
  EXPECT_EQ(feed(second_acceptor, proof).code(), Code::Denied);
}

TEST(Handshake, WhoeverChangesTheHelloOnTheWayBreaksTheProof) {
  Handshake connector(Role::Connector, ours, "test"), acceptor(Role::Acceptor, ours, "test");
  std::string hello = connector.take_output();
  hello[13] ^= 1;  // A flag that may be overlooked.
  ASSERT_TRUE(feed(acceptor, hello).ok());
  ASSERT_TRUE(feed(connector, acceptor.take_output()).ok());
  EXPECT_EQ(feed(acceptor, connector.take_output()).code(), Code::Denied);
}

TEST(Handshake, AnotherPurposeIsRefusedByName) {
  Handshake connector(Role::Connector, ours, "rendezvous"), acceptor(Role::Acceptor, ours, "tcp");
  const Outcome outcome = converse(connector, acceptor);
  EXPECT_EQ(outcome.acceptor.code(), Code::Protocol);
  EXPECT_NE(outcome.acceptor.message().find("\"rendezvous\""), std::string::npos) << outcome.acceptor.message();
  EXPECT_NE(outcome.connector.message().find("\"tcp\""), std::string::npos) << outcome.connector.message();
}

TEST(Handshake, NewerVersionIsRefusedByNumber) {
  Handshake acceptor(Role::Acceptor, ours, "test");
  std::string hello = hello_of(ours);
  hello[8] = 9;  // Speaks 7 to 9.
  hello[10] = 7;
  const Status status = feed(acceptor, hello);
  EXPECT_EQ(status.code(), Code::Protocol);
  EXPECT_NE(status.message().find("version 7 to 9"), std::string::npos) << status.message();
  EXPECT_EQ(acceptor.take_output().size(), Handshake::hello_bytes) << "the newer side must learn our version";
}

TEST(Handshake, NewerVersionThatStillSpeaksOursIsAccepted) {
  Handshake acceptor(Role::Acceptor, none, "test");
  std::string hello = hello_of(none);
  hello[8] = 9;
  EXPECT_TRUE(feed(acceptor, hello).ok());
  EXPECT_TRUE(acceptor.done());
}

TEST(Handshake, UnknownFeatureThatIsInsistedOnIsRefused) {
  Handshake acceptor(Role::Acceptor, none, "test");
  std::string hello = hello_of(none);
  hello[14] = 1;
  EXPECT_EQ(feed(acceptor, hello).code(), Code::Protocol);
}

TEST(Handshake, GarbageIsRefusedAtItsFirstByteAndGetsNoAnswer) {
  Handshake acceptor(Role::Acceptor, ours, "test");
  EXPECT_EQ(feed(acceptor, "G").code(), Code::Protocol);
  EXPECT_EQ(acceptor.take_output(), "");
  EXPECT_EQ(acceptor.wants(), 0u);
}

TEST(Handshake, TruncatedHelloIsNeverDone) {
  const std::string hello = hello_of(none);
  for (size_t length = 0; length < hello.size(); ++length) {
    Handshake acceptor(Role::Acceptor, none, "test");
    ASSERT_TRUE(feed(acceptor, hello.substr(0, length)).ok());
    ASSERT_FALSE(acceptor.done());
    ASSERT_EQ(acceptor.wants(), hello.size() - length);
    ASSERT_EQ(acceptor.take_output(), "");
  }
}

TEST(Handshake, WhatFollowsIsLeftAlone) {
  Handshake acceptor(Role::Acceptor, none, "test");
  const std::string bytes = hello_of(none) + std::string(1 << 20, 'x');
  size_t consumed = 0;
  ASSERT_TRUE(acceptor.feed(bytes, consumed).ok());
  EXPECT_TRUE(acceptor.done());
  EXPECT_EQ(consumed, Handshake::hello_bytes);
  ASSERT_TRUE(acceptor.feed("more", consumed).ok());
  EXPECT_EQ(consumed, 0u);
}

TEST(Handshake, ProofWithAnUnknownVerdictIsNoProof) {
  Handshake acceptor(Role::Acceptor, ours, "test");
  ASSERT_TRUE(feed(acceptor, hello_of(ours)).ok());
  EXPECT_EQ(feed(acceptor, std::string(Handshake::proof_bytes, '\x07')).code(), Code::Protocol);
}

TEST(Handshake, PurposeThatDoesNotFitIsAMistake) {
  EXPECT_THROW(Handshake(Role::Connector, none, std::string(25, 'p')), c10::Error);
  EXPECT_THROW(Handshake(Role::Connector, none, ""), c10::Error);
}

struct SocketPair {
  SocketPair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0); }
  ~SocketPair() {
    ::close(fd[0]);
    ::close(fd[1]);
  }
  int fd[2];
};

TEST(ShakeHands, RunsTheExchangeOnASocketAndLeavesTheRestInIt) {
  SocketPair pair;
  Status accepted;
  std::thread acceptor([&] {
    accepted = shake_hands(pair.fd[1], Role::Acceptor, ours, "test", base::Clock::now() + 10s);
    EXPECT_EQ(::send(pair.fd[1], "after", 5, 0), 5);
  });
  const Status connected = shake_hands(pair.fd[0], Role::Connector, ours, "test", base::Clock::now() + 10s);
  acceptor.join();
  EXPECT_TRUE(connected.ok()) << connected.message();
  EXPECT_TRUE(accepted.ok()) << accepted.message();
  char after[16];
  EXPECT_EQ(std::string(after, static_cast<size_t>(::recv(pair.fd[0], after, sizeof after, 0))), "after");
}

TEST(ShakeHands, SilentPeerCostsNoMoreThanTheDeadline) {
  SocketPair pair;
  EXPECT_EQ(shake_hands(pair.fd[0], Role::Acceptor, ours, "test", base::Clock::now() + 20ms).code(), Code::Timeout);
}

TEST(ShakeHands, ClosedConnectionIsAPeerLost) {
  SocketPair pair;
  ::shutdown(pair.fd[1], SHUT_WR);
  EXPECT_EQ(shake_hands(pair.fd[0], Role::Acceptor, ours, "test", base::never).code(), Code::PeerLost);
}

sockaddr_in v4(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  return address;
}

sockaddr_in6 v6(const char* text) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return address;
}

template <class Address>
const sockaddr& any(const Address& address) {
  return reinterpret_cast<const sockaddr&>(address);
}

TEST(TrustPolicy, WithoutASecretOnlyLoopbackIsAllowed) {
  for (const char* inside : {"127.0.0.1", "127.3.2.1"}) {
    EXPECT_TRUE(may_listen(none, any(v4(inside))).ok());
    EXPECT_TRUE(may_talk(none, any(v4(inside))).ok());
  }
  for (const char* outside : {"0.0.0.0", "10.0.0.3", "128.0.0.1"}) {
    EXPECT_EQ(may_listen(none, any(v4(outside))).code(), Code::Denied);
    EXPECT_EQ(may_talk(none, any(v4(outside))).code(), Code::Denied);
  }
  EXPECT_TRUE(may_talk(none, any(v6("::1"))).ok());
  EXPECT_TRUE(may_talk(none, any(v6("::ffff:127.0.0.1"))).ok());
  EXPECT_EQ(may_talk(none, any(v6("::"))).code(), Code::Denied);
  EXPECT_EQ(may_talk(none, any(v6("::ffff:10.0.0.3"))).code(), Code::Denied);
  EXPECT_EQ(may_talk(none, any(v6("fe80::1"))).code(), Code::Denied);
}

TEST(TrustPolicy, WithASecretAnyAddressIsAllowed) {
  EXPECT_TRUE(may_listen(ours, any(v4("0.0.0.0"))).ok());
  EXPECT_TRUE(may_talk(ours, any(v4("10.0.0.3"))).ok());
}

}  // namespace
}  // namespace farad::net
