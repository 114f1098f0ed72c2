#include "net/rendezvous/place.h"

#include <gtest/gtest.h>

namespace farad::net {
namespace {

TEST(RendezvousPlace, TakesTheThreeKindsApart) {
  Place place;
  ASSERT_TRUE(parse_place("tcp://node7.cluster:29500", place).ok());
  EXPECT_EQ(place.kind, Place::Kind::Tcp);
  EXPECT_EQ(place.where, "node7.cluster");
  EXPECT_EQ(place.port, 29500);

  ASSERT_TRUE(parse_place("tcp://[fe80::1]:1", place).ok());
  EXPECT_EQ(place.where, "fe80::1");
  EXPECT_EQ(place.port, 1);

  ASSERT_TRUE(parse_place("file:///shared/job 7", place).ok());
  EXPECT_EQ(place.kind, Place::Kind::File);
  EXPECT_EQ(place.where, "/shared/job 7");

  ASSERT_TRUE(parse_place("local://a/b", place).ok());
  EXPECT_EQ(place.kind, Place::Kind::Local);
  EXPECT_EQ(place.where, "a/b");
}

TEST(RendezvousPlace, SaysWhatIsWrongAndWhatIsAccepted) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "kind of meeting place"},
      {"http://host:1", "kind of meeting place"},
      {"tcp://host", "port is missing"},
      {"tcp://:1", "host is missing"},
      {"tcp://host:", "\"\" is not a port"},
      {"tcp://host:0", "\"0\" is not a port"},
      {"tcp://host:65536", "\"65536\" is not a port"},
      {"tcp://host:12x", "\"12x\" is not a port"},
      {"tcp://::1:29500", "in brackets"},
      {"tcp://[::1:29500", "bracket"},
      {"tcp://[::1]", "port is missing"},
      {"file://relative", "not absolute"},
      {"file:///a/directory/", "directory"},
      {"local://", "name is missing"},
  };
  for (const auto& [url, why] : cases) {
    Place place;
    const auto status = parse_place(url, place);
    EXPECT_EQ(status.code(), base::Code::Invalid) << url;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("accepted are tcp://host:port"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace farad::net
