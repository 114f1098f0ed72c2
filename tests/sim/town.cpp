#include "sim/town.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

namespace farad::test {

using namespace std::chrono_literals;

namespace {

Town* town = nullptr;  // Remote functions find it here.

// --- What is called ---

int64_t plain(uint64_t call, int64_t x) {
  town->ran(call);
  town->dawdle();
  return x + 1;
}
int64_t throws(uint64_t call, int64_t x) {
  town->ran(call);
  town->dawdle();
  throw std::out_of_range(std::to_string(x));
}
int64_t nests(uint64_t call, int64_t x, int64_t depth) {
  town->ran(call);
  town->act(Worker::current(), depth, 1 + static_cast<int>(town->random().below(3)));
  return x + 1;
}
Future<int64_t> later(uint64_t call, int64_t x, int to) {
  town->ran(call);
  return Worker::current().rpc_async<plain>(to, town->new_call(), x).then([](int64_t y) {
    town->dawdle();
    return y;
  });
}
int64_t until_given_up(uint64_t call, int64_t x) {
  town->ran(call);
  for (int i = 0; i < 2'000 && !cancelled(); ++i) town->simulation().pass(1ms);
  return x + 1;
}
Owned make(int64_t value) {
  town->dawdle();
  if (town->chance(0.1)) throw std::out_of_range("cannot make it");
  return town->make(Worker::current().rank(), value);
}
int64_t value_of(uint64_t call, Ref ref) {
  town->ran(call);
  town->dawdle();
  return ref.rpc_sync<&Thing::value>();
}
int64_t sum_of(uint64_t call, std::map<std::string, std::vector<Ref>> refs) {
  town->ran(call);
  int64_t sum = 0;
  for (auto& [name, some] : refs) {
    for (auto& ref : some) sum += ref.rpc_sync<&Thing::value>();
  }
  return sum;
}
/// Keeps it, and lets go of another.
void hoard(Ref ref) {
  const int rank = Worker::current().rank();
  if (town->done(rank)) return;
  auto& stash = town->stash(rank);
  stash.push_back(std::move(ref));
  if (stash.size() <= 3) return;
  auto oldest = std::move(stash.front());
  stash.pop_front();
}
Ref give_back(Ref ref) {
  town->dawdle();
  return ref;
}

bool is_named(const std::exception& error) { return dynamic_cast<const Error*>(&error) != nullptr; }

}  // namespace

void Town::dawdle() {
  if (chance(0.3)) simulation_.pass(random().between(1us, 2ms));
}

void Town::expect(uint64_t call, int64_t expected, bool may_fail, const std::function<int64_t()>& get) {
  try {
    const int64_t got = get();
    EXPECT_EQ(got, expected);
    EXPECT_EQ(runs_[call], 1) << "its function ran as often";
    ++results_;
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_named(error)) << error.what();
    EXPECT_TRUE(may_fail || trouble_.any) << "without any trouble: " << error.what();
  }
}

void Town::call(Worker& worker, int64_t depth, Hands& hands) {
  const int to = anybody();
  const auto x = static_cast<int64_t>(random().below(1000));
  const uint64_t call = new_call();
  switch (random().below(depth > 0 ? 8 : 6)) {
    case 0:
      return expect(call, x + 1, false, [&] { return worker.rpc_sync<plain>(to, call, x); });
    case 1:
      return expect(call, 0, true, [&] { return worker.rpc_sync<throws>(to, call, x); });
    case 2:
      return hands.promised.push_back({call, worker.rpc_async<later>(to, call, x, anybody()), x + 1, false});
    case 3:
      return worker.send<plain>(to, call, x);
    case 4: {
      const auto timeout = std::chrono::milliseconds(1 + random().below(5));
      return expect(call, x + 1, true, [&] {
        auto caller = worker.with({.timeout = timeout});
        return chance(0.5) ? caller.rpc_sync<until_given_up>(to, call, x) : caller.rpc_sync<plain>(to, call, x);
      });
    }
    case 5: {
      auto reply = worker.rpc_async<until_given_up>(to, call, x);
      if (chance(0.5)) dawdle();
      reply.cancel();
      return hands.promised.push_back({call, reply, x + 1, true});
    }
    case 6:
      return expect(call, x + 1, false, [&] { return worker.rpc_sync<nests>(to, call, x, depth - 1); });
    case 7:
      return hands.promised.push_back({call, worker.rpc_async<nests>(to, call, x, depth - 1), x + 1, false});
  }
}

void Town::use(Worker& worker, Hands& hands) {
  const uint64_t call = new_call();
  const auto value = static_cast<int64_t>(random().below(1000));
  const auto made = [&]() -> Ref& { return hands.references[random().below(hands.references.size())]; };
  if (hands.references.empty() || chance(0.3)) {
    hands.references.push_back(chance(0.2) ? Ref::local(worker, make(worker.rank(), value))
                                           : worker.remote<test::make>(anybody(), value));
    return;
  }
  // What each holds is not noted here: that it is the same value throughout follows from its type.
  const auto ends = [&](const std::function<void()>& act) {
    try {
      act();
      ++results_;
    } catch (const std::exception& error) {
      EXPECT_TRUE(is_named(error)) << error.what();
    }
  };
  switch (random().below(8)) {
    case 0:
      return ends([&] { made().rpc_sync<&Thing::value>(); });
    case 1:
      return ends([&] { worker.rpc_sync<value_of>(anybody(), call, made()); });
    case 2: {
      std::map<std::string, std::vector<Ref>> several{{"a", {made(), made()}}, {"b", {made()}}};
      return ends([&] { worker.rpc_sync<sum_of>(anybody(), call, several); });
    }
    case 3:
      return worker.send<hoard>(anybody(), made());
    case 4:
      return ends([&] { hands.references.push_back(worker.rpc_sync<give_back>(anybody(), made())); });
    case 5: {
      auto reply = worker.rpc_async<value_of>(anybody(), call, made());
      if (chance(0.3)) reply.cancel();
      return hands.promised.push_back({call, reply.then([](int64_t) { return int64_t{0}; }), 0, true});
    }
    case 6:
      return ends([&] {
        auto reply = made().rpc_async<&Thing::value>();
        if (chance(0.3)) reply.cancel();
        hands.promised.push_back({call, reply.then([](int64_t) { return int64_t{0}; }), 0, true});
        ran(call);
      });
    case 7:
      hands.references.erase(hands.references.begin() +
                             static_cast<ptrdiff_t>(random().below(hands.references.size())));
      return;
  }
}

void Town::step(Worker& worker, int64_t depth, Hands& hands) {
  try {
    chance(0.5) ? call(worker, depth, hands) : use(worker, hands);
  } catch (const std::exception& error) {  // Of what is only begun here: send, remote.
    EXPECT_TRUE(is_named(error)) << error.what();
    EXPECT_TRUE(trouble_.any) << error.what();
  }
}

void Town::act(Worker& worker, int64_t depth, int steps) {
  Hands hands;
  for (int i = 0; i < steps; ++i) {
    step(worker, depth, hands);
    dawdle();
  }
  for (auto& promised : hands.promised) {
    expect(promised.call, promised.expected, promised.may_fail, [&] { return promised.value.wait(); });
  }
}

void Town::live(Worker& worker) {
  const int rank = worker.rank();
  done_[rank] = false;
  stashes_[rank].clear();
  things_[rank] = std::make_shared<int>(0);
  act(worker, 3, 5 + static_cast<int>(random().below(10)));
  done_[rank] = true;
  EXPECT_TRUE(simulation_.eventually([&] {
    for (int other = 0; other < simulation_.size(); ++other) {
      if (simulation_.alive(other) && !done_[other]) return false;
    }
    return true;
  })) << "rank "
      << rank << " waits for the others";
  const auto nothing_left = [&] {
    stashes_[rank].clear();
    return worker.debug().empty();
  };
  std::ostringstream left;
  if (!simulation_.eventually(nothing_left)) left << worker.debug();
  EXPECT_EQ(left.str(), "") << "at rank " << rank;
}

void Town::conduct() {
  if (!trouble_.any) return;
  const int size = simulation_.size();
  auto& world = simulation_.world();
  const auto some = [&] { return base::Rank(static_cast<uint16_t>(anybody())); };
  for (int i = 0; i < 4; ++i) {
    simulation_.pass(random().between(10us, 30ms));
    switch (random().below(4)) {
      case 0: {
        const int rank = anybody();
        if (!simulation_.alive(rank)) break;
        simulation_.crash(rank, chance(0.5) ? net::sim::Death::OfProcess : net::sim::Death::OfMachine);
        simulation_.pass(random().between(10us, 10ms));
        stashes_[rank].clear();
        things_[rank] = std::make_shared<int>(0);
        if (trouble_.restarts && chance(0.7)) simulation_.restart(rank);
        break;
      }
      case 1:
        world.break_connection(some(), some());
        break;
      case 2:
        world.partition({some()}, {some(), some()}, random().between(1ms, 5s));
        break;
      case 3:
        if (const int rank = anybody(); simulation_.alive(rank) && size > 1) {
          world.stop(base::Rank(static_cast<uint16_t>(rank)));
          world.after(random().between(1ms, 8s),
                      [&world, rank] { world.resume(base::Rank(static_cast<uint16_t>(rank))); });
        }
        break;
    }
  }
}

void Town::run() {
  town = this;
  simulation_.run([this](Worker& worker) { live(worker); }, [this] { conduct(); });
  for (auto& stash : stashes_) stash.clear();
  for (const auto& things : things_) EXPECT_EQ(*things, 0) << "every value is freed";
  for (size_t call = 0; call < runs_.size(); ++call) EXPECT_LE(runs_[call], 1) << "call " << call;
  town = nullptr;
}

}  // namespace farad::test
