#include "autograd/peers.h"

#include <gtest/gtest.h>

namespace farad::autograd {
namespace {

using Ranks = std::vector<base::Rank>;

constexpr base::Rank peer(7);
net::Peer life(uint64_t number) { return {peer, base::Incarnation(number)}; }

TEST(Peers, AreForgottenWithTheirLife) {
  Peers peers;
  EXPECT_TRUE(peers.meet(life(1)));
  EXPECT_EQ(peers.met(), Ranks{peer});
  peers.lost(life(1));
  EXPECT_EQ(peers.met(), Ranks{});
}

TEST(Peers, OfANewLifeOutliveTheLossOfTheOldOne) {
  Peers peers;
  peers.meet(life(1));
  peers.meet(life(2));  // Before the loss is told.
  peers.lost(life(1));
  EXPECT_EQ(peers.met(), Ranks{peer});
}

TEST(Peers, ToWhomAMessageWentBeforeTheLossOfTheOldLifeWasToldAreMet) {
  Peers peers;
  peers.meet(life(1));
  peers.meet(peer);
  peers.lost(life(1));
  EXPECT_TRUE(peers.meet(life(2)));  // Where it went, as it turns out.
  EXPECT_EQ(peers.met(), Ranks{peer});
}

TEST(Peers, OfALifeThatIsOverAreNotMet) {
  Peers peers;
  peers.meet(peer);
  peers.lost(life(1));
  EXPECT_FALSE(peers.meet(life(1)));  // Whoever sent to it says so only now.
  EXPECT_EQ(peers.met(), Ranks{});
}

}  // namespace
}  // namespace farad::autograd
