// What can be done to a worker by somebody of its own user with whom it shares memory, or would like to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/net/shm_node.h"

namespace farad::net {
namespace {

using base::Code;
using base::Rank;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// The other end of a connection, in the hands of somebody who may write anything.
class ShmIntruder {
 public:
  /// `tamper` is done to the memory of the connection before it is shared.
  ShmIntruder(const std::string& address, Rank as, const Secret& secret = {},
              const std::function<void(ShmLink&)>& tamper = nullptr)
      : bell_(0us) {
    ShmLink::create(link_).raise();
    if (tamper) tamper(*link_);
    link_->own_lifeline().hold().raise();
    base::Fd socket;
    connect_to(address, socket).raise();
    ShmCaller caller(std::move(socket), secret, {as, 77, 0, 0, unguessable_address()},
                     {bell_.page_fd(), bell_.eventfd()}, *link_);
    bool answered = false;
    greeted = caller.step(answered);
    while (greeted.ok() && !answered) {
      pollfd wait{.fd = caller.socket(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 10'000) <= 0) greeted = {Code::Timeout, "no answer"};
      if (greeted.ok()) greeted = caller.step(answered);
    }
    if (greeted.ok() && caller.welcome != ShmWelcome::Yes) greeted = {Code::Invalid, "no welcome"};
  }
  ~ShmIntruder() { link_->own_lifeline().release(); }

  void say(std::string bytes) {
    iovec piece{bytes.data(), bytes.size()};
    EXPECT_EQ(link_->writer.write({&piece, 1}), bytes.size());
    link_->ring_peer();
  }
  bool is_dropped() { return link_->page().over.load() != 0; }

  base::Status greeted;  // What came of the greeting.

 private:
  SystemBell bell_;
  std::unique_ptr<ShmLink> link_;
};

TEST(ShmHostile, BadFrameEndsThatConnectionOnlyAndIsLogged) {
  constexpr Rank here{0}, intruder_rank{7};
  ShmNode victim(0), friendly(1);
  friendly.transport().set_address(here, victim.transport().address());
  ASSERT_TRUE(friendly.say(here, 1));
  ASSERT_TRUE(victim.until([](auto& r) { return r.tags.size() == 1; }));

  ShmIntruder intruder(victim.transport().address(), intruder_rank);
  ASSERT_TRUE(intruder.greeted.ok()) << intruder.greeted.message();
  intruder.say(std::string(1000, '\xee'));

  ASSERT_TRUE(victim.until([](auto& r) { return !r.losses.empty(); }));
  EXPECT_TRUE(intruder.is_dropped());
  EXPECT_TRUE(friendly.say(here, 2));
  EXPECT_TRUE(victim.until([](auto& r) { return r.tags.size() == 2; }));
  const auto told = victim.told();
  ASSERT_EQ(told.losses.size(), 1u);
  EXPECT_EQ(told.losses[0].first.rank, intruder_rank);
  EXPECT_EQ(told.losses[0].second.code(), Code::Protocol);
  ASSERT_EQ(told.lines.size(), 1u);
  EXPECT_NE(told.lines[0].find("[shm] dropped the connection to rank 7: "), std::string::npos) << told.lines[0];
}

TEST(ShmHostile, LifelineThatIsNotFreeOrNoneAtAllHoldsUpNobody) {
  ShmNode victim(0), friendly(1);
  friendly.transport().set_address(Rank(0), victim.transport().address());
  const auto take = [](ShmLink& link) { std::thread([&] { link.peer_lifeline().hold().raise(); }).join(); };
  const auto spoil = [](ShmLink& link) {
    std::memset(static_cast<void*>(&link.peer_lifeline()), 0xee, sizeof(shm::Lifeline));
  };

  const ShmIntruder taking(victim.transport().address(), Rank(6), {}, take);
  const ShmIntruder spoiling(victim.transport().address(), Rank(7), {}, spoil);

  ASSERT_TRUE(friendly.say(Rank(0), 1));
  EXPECT_TRUE(victim.until([](auto& r) { return r.tags.size() == 1; }));
}

TEST(ShmHostile, OneWithAWrongSecretIsDroppedAndLogged) {
  constexpr Rank here{0};
  ShmNode victim(0, 20s, Secret("right")), friendly(1, 20s, Secret("right"));
  friendly.transport().set_address(here, victim.transport().address());

  ShmIntruder intruder(victim.transport().address(), Rank(7), Secret("wrong"));

  EXPECT_EQ(intruder.greeted.code(), Code::Denied) << intruder.greeted.message();
  ASSERT_TRUE(victim.until([](auto& r) { return !r.lines.empty(); }));
  EXPECT_TRUE(friendly.say(here, 1));
  EXPECT_TRUE(victim.until([](auto& r) { return r.tags.size() == 1; }));
  const auto told = victim.told();
  EXPECT_TRUE(told.losses.empty());
  ASSERT_EQ(told.lines.size(), 1u);
  EXPECT_NE(told.lines[0].find("[shm] dropped a connection: "), std::string::npos) << told.lines[0];
  EXPECT_NE(told.lines[0].find("different secrets"), std::string::npos) << told.lines[0];
}

TEST(ShmGreeting, SilentStrangersHoldUpNobody) {
  ShmNode victim(0), friendly(1);
  friendly.transport().set_address(Rank(0), victim.transport().address());
  std::vector<base::Fd> silent(20);
  for (auto& socket : silent) ASSERT_TRUE(connect_to(victim.transport().address(), socket).ok());

  ASSERT_TRUE(friendly.say(Rank(0), 1));

  EXPECT_TRUE(victim.until([](auto& r) { return r.tags.size() == 1; }));
  EXPECT_TRUE(victim.told().lines.empty()) << "all of them are still there";
}

TEST(ShmGreeting, CrowdOfSilentStrangersLosesItsFirst) {
  ShmNode victim(0), friendly(1);
  friendly.transport().set_address(Rank(0), victim.transport().address());
  std::vector<base::Fd> silent(300);
  for (auto& socket : silent) ASSERT_TRUE(connect_to(victim.transport().address(), socket).ok());

  ASSERT_TRUE(friendly.say(Rank(0), 1));

  EXPECT_TRUE(victim.until([](auto& r) { return r.tags.size() == 1; }));
  EXPECT_GE(victim.told().lines.size(), 44u) << "300 are more than 256";
  EXPECT_THAT(victim.told().lines[0], HasSubstr("too many strangers"));
}

/// The addresses of peers that are stopped: the system takes the call, and nobody answers it.
struct Stopped {
  Stopped() {
    for (size_t i = 0; i < 2; ++i) {
      addresses.push_back(unguessable_address());
      listen_on(addresses[i], listeners[i]).raise();
    }
  }
  base::Fd listeners[2];
  std::vector<std::string> addresses;
};

TEST(ShmGreeting, StoppedPeersDoNotDelayTheFirstContactWithAnother) {
  const Stopped stopped;
  ShmNode caller(0), healthy(3);
  caller.transport().set_address(Rank(1), stopped.addresses[0]);
  caller.transport().set_address(Rank(2), stopped.addresses[1]);
  caller.transport().set_address(Rank(3), healthy.transport().address());

  for (uint16_t rank = 1; rank <= 3; ++rank) ASSERT_TRUE(caller.say(Rank(rank), rank));

  EXPECT_TRUE(healthy.until([](auto& r) { return r.tags.size() == 1; }));
  EXPECT_TRUE(caller.told().losses.empty()) << "both are still being called";
}

TEST(ShmGreeting, PeerThatIsStoppedBeforeTheFirstContactIsLostInTime) {
  constexpr auto lost_after = 300ms;
  const Stopped stopped;
  ShmNode caller(0, lost_after);
  caller.transport().set_address(Rank(1), stopped.addresses[0]);
  caller.transport().set_address(Rank(2), stopped.addresses[1]);

  const auto before = base::Clock::now();
  ASSERT_TRUE(caller.say(Rank(1), 1));
  ASSERT_TRUE(caller.say(Rank(2), 1));

  ASSERT_TRUE(caller.until([](auto& r) { return r.losses.size() == 2; }));
  EXPECT_LE(base::Clock::now() - before, 3 * lost_after);
  for (const auto& [peer, why] : caller.told().losses) {
    EXPECT_EQ(why.code(), Code::PeerLost);
    EXPECT_NE(why.message().find("did not answer in 300 ms"), std::string::npos) << why.message();
  }
}

}  // namespace
}  // namespace farad::net
