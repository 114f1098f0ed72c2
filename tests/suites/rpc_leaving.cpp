// One that goes while the others stay.

#include <farad/rref.h>
#include <farad/worker.h>

#include <atomic>
#include <memory>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

int64_t add_one(int64_t x) { return x + 1; }

static Door* held;
int64_t hold(int64_t x) {
  held->pass();
  return x;
}

struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  static inline std::atomic<int> alive{0};
};
std::unique_ptr<Counted> make_counted() { return std::make_unique<Counted>(); }
void look_at(const std::unique_ptr<Counted>&) {}

RPC_TEST(OneLeavesAndTheOthersGoOn) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    Group group = start(3);
    const int a = (leaver + 1) % 3, b = (leaver + 2) % 3;
    ASSERT_EQ(group[a].rpc_sync<add_one>(leaver, 1), 2);
    auto owned_there = group[a].remote<add_one>(leaver, 1);
    ASSERT_EQ(owned_there.to_here(), 2);
    const auto held_there = group[leaver].remote<make_counted>(a);
    held_there.rpc_sync<look_at>();
    ASSERT_EQ(Counted::alive, 1);

    group[leaver].leave();

    EXPECT_THROW(group[leaver].rpc_sync<add_one>(a, 1), Closed);
    const auto named = HasSubstr("worker" + std::to_string(leaver));
    EXPECT_THAT(message_of<PeerLost>([&] { group[a].rpc_sync<add_one>(leaver, 1); }),
                AllOf(HasSubstr("add_one"), named));
    EXPECT_THAT(message_of<PeerLost>([&] { owned_there.to_here(); }), AllOf(HasSubstr("to_here"), named));
    EXPECT_TRUE(eventually([] { return Counted::alive == 0; })) << "what only it held is freed";
    EXPECT_THROW(held_there.rpc_sync<look_at>(), Closed);
    owned_there = {};
    EXPECT_EQ(group[a].rpc_sync<add_one>(b, 1), 2);
    EXPECT_EQ(group[b].rpc_sync<add_one>(a, 1), 2);
    group.drop(leaver);
    Thread other([&] { EXPECT_NO_THROW(group[a].barrier()) << leaver; });
    EXPECT_NO_THROW(group[b].barrier()) << leaver;
    other.join();
    group.each([&](Worker& worker) { EXPECT_NO_THROW(worker.close()) << leaver << " seen by " << worker.rank(); });
  }
}

RPC_TEST(LeaveWaitsForWorkOfItsOwn) {
  Door here;
  held = &here;
  Group group = start(3);
  auto reply = group[0].rpc_async<hold>("worker1", 5);
  ASSERT_TRUE(here.has_come());

  Thread leaving([&] { group[0].leave(); });
  EXPECT_FALSE(reply.wait_for(20ms));
  here.open();
  leaving.join();

  EXPECT_EQ(reply.wait(), 5);
}

RPC_TEST(ThoseAtABarrierNoticeThatSomebodyLeft) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    Group group = start(3);
    std::atomic<int> there{0};
    Thread meeting([&] {
      group.each([&](Worker& worker) {
        if (worker.rank() == leaver) {
          EXPECT_TRUE(eventually([&] { return there == 2; }));
          worker.leave();
        } else {
          ++there;
          EXPECT_NO_THROW(worker.barrier()) << "left " << leaver << ", here " << worker.rank();
        }
      });
    });
    meeting.join();
  }
}

}  // namespace
}  // namespace farad::test
