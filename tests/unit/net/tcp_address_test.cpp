#include "net/tcp/address.h"

#include <gtest/gtest.h>

namespace farad::net::tcp {
namespace {

TEST(TcpAddress, ReadsWhatItWrites) {
  for (const std::string text : {"10.0.0.3:4711", "[fd00::1]:4711", "head:1"}) {
    Address address;
    ASSERT_TRUE(Address::parse(text, address).ok()) << text;
    EXPECT_EQ(address.text(), text);
  }
}

TEST(TcpAddress, WhatIsNoneIsRefused) {
  for (const std::string text : {"", "head", "head:", ":4711", "head:0", "head:65536", "head:4711x", "fd00::1:4711",
                                 "[fd00::1]", "[fd00::1:4711", "[]:4711"}) {
    Address address;
    EXPECT_FALSE(Address::parse(text, address).ok()) << text;
  }
}

TEST(TcpAddress, OneThatIsBoundIsTheOneToAnnounce) {
  EXPECT_EQ(reachable_host("10.0.0.3", "10.1.0.3"), "10.0.0.3");
  EXPECT_EQ(reachable_host("fd00::3", "10.1.0.3"), "fd00::3");
}

TEST(TcpAddress, OneTowardTheOthersIsAnnouncedByWhoeverListensEverywhere) {
  EXPECT_EQ(reachable_host("0.0.0.0", "10.1.0.3"), "10.1.0.3");
  EXPECT_EQ(reachable_host("::", "10.1.0.3"), "10.1.0.3");
  EXPECT_EQ(reachable_host("::", "fd00::3"), "fd00::3");
  EXPECT_FALSE(is_v6(reachable_host("0.0.0.0", "fd00::3"))) << "nobody listens there";
}

TEST(TcpAddress, LoopbackSaysNothingAboutTheWayToOthers) {
  EXPECT_EQ(address_toward("127.0.0.1"), "");
  EXPECT_EQ(address_toward("localhost"), "");
  EXPECT_EQ(address_toward(""), "");
}

}  // namespace
}  // namespace farad::net::tcp
