#include "net/router.h"

#include <gtest/gtest.h>

#include <vector>

namespace farad::net {
namespace {

// Routes are kept by rank: a list that names others would be written beyond its end.
TEST(Router, TakesEachRankOnceAndInOrder) {
  const std::vector<std::vector<uint16_t>> lists{{7}, {1, 0}, {0, 0}, {0, 2}};
  for (const auto& ranks : lists) {
    std::vector<Member> members;
    for (const auto rank : ranks) members.emplace_back().rank = base::Rank(rank);
    Router router;
    EXPECT_EQ(router.set_members(std::move(members), [](const Member&) { return nullptr; }).code(),
              base::Code::Protocol);
  }
}

}  // namespace
}  // namespace farad::net
