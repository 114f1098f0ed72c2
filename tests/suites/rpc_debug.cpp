// What a worker says of itself.

#include <farad/rref.h>
#include <farad/worker.h>

#include <sstream>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

static Door* held;

int64_t hold(int64_t x) {
  held->pass();
  return x;
}
int64_t number() { return 7; }

RPC_TEST(CallsInFlightAreListedAtBothEnds) {
  Door here;
  held = &here;
  Group group = start(2);
  EXPECT_TRUE(group[0].debug().empty());
  const auto before = runtime().now();
  auto reply = group[0].rpc_async<hold>("worker1", 1);
  ASSERT_TRUE(here.has_come());
  const auto begun = runtime().now();
  ASSERT_TRUE(eventually([&] { return runtime().now() >= begun + 2ms; }));

  const auto caller = group[0].debug(), callee = group[1].debug();
  ASSERT_EQ(caller.made.size(), 1u);
  EXPECT_THAT(caller.made[0].function, HasSubstr("hold"));
  EXPECT_THAT(caller.made[0].peer, HasSubstr("worker1"));
  ASSERT_EQ(callee.running.size(), 1u);
  EXPECT_THAT(callee.running[0].function, HasSubstr("hold"));
  EXPECT_THAT(callee.running[0].peer, HasSubstr("worker0"));
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(runtime().now() - before);
  for (const auto age : {caller.made[0].age, callee.running[0].age}) {
    EXPECT_GE(age, 2ms);
    EXPECT_LE(age, most);
  }
  std::ostringstream text;
  text << caller;
  EXPECT_THAT(text.str(), AllOf(HasSubstr("calls made: 1"), HasSubstr("hold")));

  here.open();
  reply.wait();
  EXPECT_TRUE(eventually([&] { return group[0].debug().empty() && group[1].debug().empty(); }));
}

RPC_TEST(ReferencesAreListedWithWhereTheyCameFrom) {
  Group group = start(2);
  auto there = group[0].remote<number>("worker1");
  auto here = RRef<int64_t>::local(group[0], 3);
  ASSERT_EQ(there.to_here(), 7);

  const auto maker = group[0].debug(), owner = group[1].debug();
  ASSERT_EQ(maker.held.size(), 1u);
  EXPECT_EQ(maker.held[0].owner, "worker1");
  EXPECT_THAT(maker.held[0].origin, AllOf(HasSubstr("remote"), HasSubstr("number")));
  ASSERT_EQ(maker.owned.size(), 1u);
  EXPECT_THAT(maker.owned[0].origin, HasSubstr("rpc_debug.cpp:"));
  ASSERT_EQ(owner.owned.size(), 1u);
  EXPECT_THAT(owner.owned[0].origin, HasSubstr("by worker0"));
  EXPECT_THAT(owner.owned[0].holders, testing::ElementsAre("worker0"));

  there = {};
  here = {};
  EXPECT_TRUE(eventually([&] { return group[0].debug().empty() && group[1].debug().empty(); }));
}

RPC_TEST(ReferenceThatIsHeldAtCloseIsReported) {
  testing::internal::CaptureStderr();
  RRef<int64_t> forgotten;
  {
    Group group = start(2);
    forgotten = group[0].remote<number>("worker1");
    forgotten.to_here();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("worker0 warning"), HasSubstr("still held"), HasSubstr("number")));
}

}  // namespace
}  // namespace farad::test
