// Workers of one process can get at each other's references without a call. Of their own group those are as good as
// lent ones; of another they mean nothing.

#include <farad/rref.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int64_t seven() { return 7; }
int64_t fetch(const RRef<int64_t>& ref) { return ref.to_here(); }
int64_t add_fetched(int64_t& value, const RRef<int64_t>& ref) { return value + ref.to_here(); }

/// What a test leaves for a function to return.
static RRef<int64_t>* given;
RRef<int64_t> give() { return *given; }

void expect_nothing_is_left(Group& group) {
  EXPECT_TRUE(eventually([&] {
    for (int rank = 0; rank < group.size(); ++rank) {
      if (!group[rank].debug().empty()) return false;
    }
    return true;
  }));
}

TEST_P(RpcSuite, ReferenceOfAnotherGroupIsRefusedAsAnArgumentAndHoldsNobodyUp) {
  if (GetParam() == "sim") GTEST_SKIP() << "a simulated world has one group";
  Group group = start(2), other = start(2);
  auto mine = RRef<int64_t>::local(group[1], 1);
  for (const int owner : {0, 1}) {  // of the rank of the one that is to lend it, and of another
    const auto strange = RRef<int64_t>::local(other[owner], 3);
    const auto named = [owner](const char* function, const char* peer) {
      return AllOf(HasSubstr(function), HasSubstr(peer), HasSubstr("worker" + std::to_string(owner) + " in another"));
    };
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<fetch>("worker1", strange); }), named("fetch", "to worker1"));
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<fetch>(0, strange); }), named("fetch", "to worker0"));
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_async<fetch>(1, strange).wait(); }), named("fetch", "worker1"));
    EXPECT_THAT(message_of<Error>([&] { group[0].remote<fetch>(1, strange).to_here(); }), named("fetch", "worker1"));
    EXPECT_THAT(message_of<Error>([&] { mine.rpc_sync<add_fetched>(strange); }), named("add_fetched", "to worker1"));
    EXPECT_EQ(strange.to_here(), 3) << "in its own group it is as good as before";
  }
  mine = {};
  for (auto* each : {&group, &other}) {
    expect_nothing_is_left(*each);
    each->each([](Worker& worker) { EXPECT_NO_THROW(worker.close()); });
  }
}

TEST_P(RpcSuite, ReferenceOfAnotherGroupIsRefusedAsAResultAndHoldsNobodyUp) {
  if (GetParam() == "sim") GTEST_SKIP() << "a simulated world has one group";
  Group group = start(2), other = start(2);
  for (const int owner : {0, 1}) {
    auto strange = other[0].remote<seven>(owner);
    EXPECT_EQ(strange.to_here(), 7);
    given = &strange;
    for (const char* callee : {"worker1", "worker0"}) {
      EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<give>(callee); }),
                  AllOf(HasSubstr("result"), HasSubstr("give"), HasSubstr(callee), HasSubstr("another group")));
    }
  }
  expect_nothing_is_left(group);
}

RPC_TEST(ReferencesOfOneGroupMayBeUsedThroughAnyOfItsWorkers) {
  Group group = start(3);
  for (const int owner : {0, 1, 2}) {
    const auto made = group[0].remote<seven>(owner);
    const auto own = RRef<int64_t>::local(group[owner], 5);
    for (const int caller : {0, 1, 2}) {
      for (const int callee : {0, 1, 2}) {
        EXPECT_EQ(group[caller].rpc_sync<fetch>(callee, made), 7) << owner << caller << callee;
        EXPECT_EQ(group[caller].rpc_sync<fetch>(callee, own), 5) << owner << caller << callee;
      }
    }
  }
  expect_nothing_is_left(group);
}

/// Its own hold on the value went with the worker, and the value with that.
RPC_TEST(ShareOfAWorkerThatIsGoneIsLostToThoseWhoUseItThroughTheOwner) {
  for (const int maker : {0, 1}) {
    Group group = start(3);
    auto made = maker == 0 ? RRef<int64_t>::local(group[0], 7) : group[maker].remote<seven>(0);
    ASSERT_EQ(made.to_here(), 7);
    given = &made;
    const auto share = group[2].rpc_sync<give>(maker);
    made = {};
    ASSERT_EQ(share.to_here(), 7);
    ASSERT_TRUE(eventually([&] { return group[0].debug().unsettled == 0 && group[1].debug().empty(); }));
    group.drop(2);
    ASSERT_TRUE(eventually([&] { return group[0].debug().owned.empty(); }));

    EXPECT_THAT(message_of<RemoteError>([&] { group[0].rpc_sync<fetch>("worker1", share); }),
                AllOf(HasSubstr("PeerLost"), HasSubstr("no longer on worker0")));

    EXPECT_TRUE(eventually([&] { return group[0].debug().empty() && group[1].debug().empty(); }));
  }
}

}  // namespace
}  // namespace farad::test
