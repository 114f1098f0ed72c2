#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <iterator>

#include "net/rendezvous/codec.h"
#include "net/rendezvous/sockets.h"
#include "net/rendezvous/tcp_host.h"
#include "unit/net/rendezvous_support.h"

namespace farad::net::test {
namespace {

using base::Code;
using meeting::Address;

class RendezvousTcp : public ::testing::Test {
 protected:
  std::unique_ptr<Joiner> start(Member self, int size, Joiner::Options options = {}) {
    return std::make_unique<Joiner>(url_, std::move(self), size, options);
  }

  /// Somebody who connects as soon as the host listens.
  base::Fd stranger() const {
    const auto deadline = base::Clock::now() + 10s;
    std::vector<Address> addresses;
    meeting::resolve("127.0.0.1", port_, addresses).raise();
    base::Fd socket;
    while (!meeting::connect_to(addresses.front(), {}, deadline, socket).ok()) {
      if (base::Clock::now() > deadline) throw std::runtime_error("the host never listened");
      std::this_thread::yield();
    }
    return socket;
  }

  /// A stranger that has shaken hands.
  base::Fd guest() const {
    auto socket = stranger();
    shake_hands(socket.get(), Handshake::Role::Connector, {}, rendezvous_purpose, base::Clock::now() + 10s).raise();
    return socket;
  }

  /// A guest that has sat down.
  base::Fd seated(const Member& self, int size) const {
    auto socket = guest();
    const auto deadline = base::Clock::now() + 10s;
    meeting::send_frame(socket.get(), encode(meeting::Ask{self, size, -1}), deadline).raise();
    EXPECT_EQ(hear(socket).kind, meeting::Answer::Kind::Seated);
    return socket;
  }

  /// Whom the host would name as missing, as the last rank of the group hears.
  std::string missing_now(int size) const {
    auto socket = guest();
    meeting::send_frame(socket.get(), encode(meeting::Ask{member(size - 1), size, 0}), base::never).raise();
    EXPECT_EQ(hear(socket).kind, meeting::Answer::Kind::Seated);
    return hear(socket).status.message();
  }

  static meeting::Answer hear(const base::Fd& socket) {
    std::string payload;
    meeting::Answer answer;
    meeting::receive_frame(socket.get(), meeting::answer_bytes, base::Clock::now() + 10s, payload).raise();
    decode(payload, answer).raise();
    return answer;
  }

  static bool closed_by_host(const base::Fd& socket) {
    char byte[256];
    while (meeting::wait_ready(socket.get(), POLLIN, base::Clock::now() + 10s)) {
      const ssize_t n = ::recv(socket.get(), byte, sizeof(byte), 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

  const uint16_t port_ = free_port();
  const std::string url_ = "tcp://127.0.0.1:" + std::to_string(port_);
};

TEST_F(RendezvousTcp, SilentClientsDelayNobody) {
  auto host = start(member(0), 3);
  std::vector<base::Fd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger());
  auto half_way = guest();  // Shakes hands, and then says nothing.
  const auto begin = base::Clock::now();
  auto second = start(member(1), 3);
  auto third = start(member(2), 3);
  for (auto* joiner : {&host, &second, &third}) EXPECT_TRUE((*joiner)->status().ok()) << (*joiner)->status().message();
  EXPECT_LT(base::Clock::now() - begin, 3s);  // Strangers have five.
}

TEST_F(RendezvousTcp, MoreStrangersThanThereIsRoomForKeepNobodyOut) {
  auto host = start(member(0), 2);
  std::vector<base::Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(stranger());
  auto second = start(member(1), 2);
  EXPECT_TRUE(host->status().ok()) << host->status().message();
  EXPECT_TRUE(second->status().ok()) << second->status().message();
  EXPECT_TRUE(closed_by_host(silent.front())) << "the oldest made room";
}

TEST_F(RendezvousTcp, NorDoThoseWhoWereTurnedAwayAndStay) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  };
  auto host = start(member(0), 2);
  std::vector<base::Fd> rude;
  rude.push_back(stranger());
  const size_t before = descriptors();
  for (int i = 0; i < 400; ++i) {
    rude.push_back(stranger());
    ASSERT_EQ(::send(rude.back().get(), "GET / HTTP", 10, MSG_NOSIGNAL), 10);
    ASSERT_TRUE(closed_by_host(rude.back()));
  }
  EXPECT_LT(descriptors(), before + 400 + 256 + 10) << "the host keeps the connections of no more than 256";
  auto second = start(member(1), 2);
  EXPECT_TRUE(host->status().ok()) << host->status().message();
}

TEST_F(RendezvousTcp, GarbageClosesThatConnectionAndNothingElse) {
  auto host = start(member(0), 2);
  auto garbage = stranger();
  const std::string text(5000, 'G');
  ASSERT_GT(::send(garbage.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(closed_by_host(garbage));
  auto second = start(member(1), 2);
  EXPECT_TRUE(host->status().ok()) << host->status().message();
  EXPECT_TRUE(second->status().ok()) << second->status().message();
}

TEST_F(RendezvousTcp, AMalformedRequestIsRefusedAlone) {
  auto host = start(member(0), 2);
  const auto whole = meeting::frame(encode(meeting::Ask{member(1), 2, -1}));
  for (const std::string& request :
       {std::string("\xff\xff\xff\xff", 4), meeting::frame("nonsense"), meeting::frame(""), whole + "more"}) {
    auto bad = guest();
    ASSERT_GT(::send(bad.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(hear(bad).status.code(), Code::Protocol);
    EXPECT_TRUE(closed_by_host(bad));
  }
  auto second = start(member(1), 2);
  EXPECT_TRUE(host->status().ok()) << host->status().message();
}

TEST_F(RendezvousTcp, WhoSpeaksOutOfTurnLosesTheSeat) {
  auto host = start(member(0), 3, {.timeout = 1s});
  auto rude = seated(member(1, "rude"), 3);
  ASSERT_EQ(::send(rude.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(closed_by_host(rude));
  expect_failure(*host, Code::Timeout, {"rank 1 (\"rude\""});
}

TEST_F(RendezvousTcp, AMemberThatDiesWhileWaitingIsForgotten) {
  auto host = start(member(0), 3, {.timeout = 1s});
  auto dying = seated(member(1, "trainer"), 3);
  dying.reset();
  expect_failure(*host, Code::Timeout, {"rank 1 (\"trainer\", which came and left), rank 2"});
}

TEST_F(RendezvousTcp, ARestartedWorkerWaitsForItsFormerLifeToEnd) {
  auto host = start(member(0), 3);
  auto former = seated(member(1), 3);
  auto later = start(member(1), 3);
  auto third = seated(member(2), 3);  // All ranks are there, so this group is complete with the former one in it.
  EXPECT_EQ(hear(third).kind, meeting::Answer::Kind::Complete);
  former.reset();
  EXPECT_TRUE(later->status().ok()) << later->status().message();
}

TEST_F(RendezvousTcp, OneWithAWrongSecretIsDeniedAndNamedAsMissing) {
  auto host = start(member(0), 2, {.timeout = 1s, .secret = "right"});
  auto wrong = start(member(1), 2, {.timeout = 1s, .secret = "wrong"});
  expect_failure(*wrong, Code::Denied, {});
  expect_failure(*host, Code::Timeout, {"missing: rank 1", "turned away", "127.0.0.1"});
}

TEST_F(RendezvousTcp, WithoutASecretOnlyLoopback) {
  for (int rank : {0, 1}) {
    Joiner joiner("tcp://192.0.2.1:29500", member(rank), 2);  // An address for documentation: nobody has it.
    expect_failure(joiner, Code::Denied, {"FARAD_SECRET", "192.0.2.1"});
  }
}

TEST_F(RendezvousTcp, AHostThatNeverCameIsNamed) {
  expect_failure(*start(member(1), 2, {.timeout = 200ms}), Code::Timeout, {"rank 0", "did not come in time"});
}

TEST_F(RendezvousTcp, AHostThatEndedIsNamed) {
  auto host = start(member(0, "lead"), 4);
  auto second = start(member(1), 4, {.timeout = 2s});
  while (missing_now(4).find("rank 1") != std::string::npos) ASSERT_TRUE(base::Clock::now() < second->deadline());
  host->close();
  expect_failure(*second, Code::Timeout, {"rank 0 (\"lead\")", "is gone"});
}

TEST_F(RendezvousTcp, ASecondRankZeroFailsOnBoth) {
  auto first = start(member(0, "a"), 2);
  auto second = start(member(0, "b"), 2);
  for (auto* joiner : {&first, &second}) expect_failure(**joiner, Code::Invalid, {"rank 0 is taken twice"});
}

TEST_F(RendezvousTcp, AnotherProgramOnThePortIsSaidToBeNoRendezvous) {
  base::Fd listener;
  Address reach;
  ASSERT_TRUE(meeting::listen_at("127.0.0.1", port_, {}, listener, reach).ok());
  auto rank_0 = start(member(0), 2);
  ASSERT_TRUE(meeting::wait_ready(listener.get(), POLLIN, base::Clock::now() + 10s));
  base::Fd connection(::accept(listener.get(), nullptr, nullptr));
  const std::string text(500, 'H');
  ASSERT_GT(::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  expect_failure(*rank_0, Code::Protocol, {});
}

TEST_F(RendezvousTcp, ThePortIsFreeOnceTheHostClosed) {
  auto joiners = start_group(url_, 2);
  for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
  joiners[0]->close();
  base::Fd listener;
  Address reach;
  EXPECT_TRUE(meeting::listen_at("127.0.0.1", port_, {}, listener, reach).ok());
}

TEST_F(RendezvousTcp, MeetsOnIPv6) {
  const auto port = free_port(AF_INET6);
  if (port == 0) GTEST_SKIP() << "this machine has no IPv6 loopback";
  for (auto& joiner : start_group("tcp://[::1]:" + std::to_string(port), 3))
    EXPECT_TRUE(joiner->status().ok()) << joiner->status().message();
}

TEST_F(RendezvousTcp, MeetsOnAName) {
  for (auto& joiner : start_group("tcp://localhost:" + std::to_string(port_), 3))
    EXPECT_TRUE(joiner->status().ok()) << joiner->status().message();
}

}  // namespace
}  // namespace farad::net::test
