// How contexts end: workers that tell each other of it over a network that loses what it is told to.

#include "autograd/contexts.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace farad::autograd {
namespace {

using base::Incarnation;
using base::Rank;
using net::Peer;

/// Workers, and what is on its way between them, which arrives when deliver() is called.
class Network {
 public:
  explicit Network(uint16_t workers) {
    for (uint16_t rank = 0; rank < workers; rank++) add(rank, 1);
  }

  Contexts& at(uint16_t rank) { return *workers_.at(rank); }
  /// A message of that context comes to `to`.
  std::shared_ptr<LocalContext> meet(ContextId id, uint16_t from, uint16_t to) {
    return at(to).take_message(id, {Rank(from), life_});
  }
  bool has(uint16_t rank, ContextId id) { return at(rank).find(id) != nullptr; }

  /// Until nothing is on its way.
  void deliver() {
    for (int i = 0; !mail_.empty() && i < 1000; i++) {
      auto mail = std::move(mail_.front());
      mail_.pop_front();
      if (dead_.contains(mail.to)) {
        lose(mail.from, mail.to);
      } else {
        EXPECT_TRUE(at(mail.to).on_news({Rank(mail.from), life_}, mail.body).ok());
      }
    }
    EXPECT_TRUE(mail_.empty()) << "it does not come to an end";
  }
  /// Loses what is on its way between the two, which both are told.
  void break_connection(uint16_t a, uint16_t b) {
    std::erase_if(
        mail_, [&](const Mail& mail) { return (mail.from == a && mail.to == b) || (mail.from == b && mail.to == a); });
    lose(a, b);
    lose(b, a);
  }
  /// From now on, all connections to it are lost after the first message.
  void crash(uint16_t rank) {
    dead_.insert(rank);
    for (uint16_t other = 0; other < workers_.size(); other++) {
      if (other != rank) break_connection(other, rank);
    }
  }
  void restart(uint16_t rank) {
    crash(rank);
    dead_.erase(rank);
    add(rank, 2);
  }
  /// Nobody is reached there: not even a connection can be lost.
  void make_unreachable(uint16_t rank) { unreachable_.insert(rank); }
  size_t on_its_way() const { return mail_.size(); }
  /// What workers leave for later is done by do_what_is_left() from now on, not at once.
  void leave_for_later() { later_comes_ = false; }
  void do_what_is_left() {
    for (const auto& task : std::exchange(left_, {})) task();
  }

 private:
  struct Mail {
    uint16_t from, to;
    wire::Bytes body;
  };

  void add(uint16_t rank, uint64_t birth) {
    auto group = std::make_shared<Group>();
    group->self = Rank(rank);
    group->name_of = [](Rank other) { return "worker" + std::to_string(other.value); };
    Contexts::Services services;
    services.post = [this, rank](Rank to, wire::Bytes body) {
      if (unreachable_.contains(to.value)) return false;
      mail_.push_back({rank, to.value, std::move(body)});
      return true;
    };
    services.later = [this](const std::function<void()>& task) { later_comes_ ? task() : left_.push_back(task); };
    services.perform = [](const std::shared_ptr<LocalContext>&, const LocalContext::Work&) {};
    workers_[rank] = std::make_unique<Contexts>(std::move(group), birth, std::move(services));
  }
  void lose(uint16_t at_worker, uint16_t peer) {
    if (!dead_.contains(at_worker)) at(at_worker).on_lost({Rank(peer), life_});
    life_ = Incarnation(life_.value + 1);
  }

  std::map<uint16_t, std::unique_ptr<Contexts>> workers_;
  std::deque<Mail> mail_;
  std::vector<std::function<void()>> left_;
  bool later_comes_ = true;
  std::set<uint16_t> dead_, unreachable_;
  Incarnation life_{1};
};

TEST(Contexts, EndWhereverTheyWereSeen) {
  Network network(3);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.meet(id, 1, 2);  // Which its maker never met.
  network.deliver();
  EXPECT_TRUE(network.has(2, id));

  network.at(0).release(id);
  network.deliver();

  EXPECT_FALSE(network.has(1, id));
  EXPECT_FALSE(network.has(2, id));
}

TEST(Contexts, EndAgainIfALateMessageBringsThemBack) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.at(0).release(id);
  EXPECT_NE(network.meet(id, 0, 1), nullptr);  // The other cannot know.
  network.deliver();
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, AreNotMadeAgainByALateMessageWhereTheirEndWasHeard) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.deliver();
  network.at(0).release(id);
  network.deliver();

  EXPECT_EQ(network.meet(id, 0, 1), nullptr);
  EXPECT_FALSE(network.has(1, id));
  EXPECT_EQ(network.on_its_way(), 0U);  // Nobody has to be asked.
}

TEST(Contexts, EndAgainAlsoWhereTheirEndIsForgottenBecauseOfManyOthers) {
  Network network(2);
  std::vector<ContextId> ids;
  for (size_t i = 0; i <= EndedContexts::most; i++) {
    ids.push_back(network.at(0).make()->id());
    network.meet(ids.back(), 0, 1);
    network.deliver();
    network.at(0).release(ids.back());
    network.deliver();
  }
  for (size_t i = 1; i < ids.size(); i++) EXPECT_EQ(network.meet(ids[i], 0, 1), nullptr) << i;

  EXPECT_NE(network.meet(ids.front(), 0, 1), nullptr);
  network.deliver();
  EXPECT_FALSE(network.has(1, ids.front()));
}

TEST(Contexts, TellOfManyEndsInOneMessageForEachWorker) {
  Network network(3);
  network.leave_for_later();
  std::vector<ContextId> ids;
  for (int i = 0; i < 10; i++) {
    ids.push_back(network.at(0).make()->id());
    for (const uint16_t worker : {1, 2}) network.meet(ids.back(), 0, worker);
  }
  network.do_what_is_left();
  EXPECT_EQ(network.on_its_way(), 2U);  // Who has them, from each.
  network.deliver();

  for (const auto id : ids) network.at(0).release(id);
  EXPECT_EQ(network.on_its_way(), 0U);  // Whoever ends one does not send.
  network.do_what_is_left();
  EXPECT_EQ(network.on_its_way(), 2U);
  network.deliver();
  for (const auto id : ids) EXPECT_FALSE(network.has(1, id) || network.has(2, id));
}

TEST(Contexts, TellOfTheirEndsAtOnceWhenTheseAreManyForOneWorker) {
  Network network(2);
  std::vector<ContextId> ids;
  for (size_t i = 0; i < Contexts::many; i++) {
    ids.push_back(network.at(0).make()->id());
    network.meet(ids.back(), 0, 1);
  }
  network.deliver();
  network.leave_for_later();

  const auto last = ids.back();
  ids.pop_back();
  for (const auto id : ids) network.at(0).release(id);
  EXPECT_EQ(network.on_its_way(), 0U);
  network.at(0).release(last);
  EXPECT_EQ(network.on_its_way(), 1U);
  network.do_what_is_left();
  EXPECT_EQ(network.on_its_way(), 1U);  // Nothing is told twice.
  network.deliver();
  for (const auto id : ids) EXPECT_FALSE(network.has(1, id));
  EXPECT_FALSE(network.has(1, last));
}

TEST(Contexts, AreNeverMadeAgainByTheirMaker) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.at(0).release(id);
  EXPECT_EQ(network.meet(id, 1, 0), nullptr);
}

TEST(Contexts, AreEndedByNobodyButTheirMaker) {
  Network network(3);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  wire::Bytes ended(9);
  std::memcpy(ended.data(), &id.value, 8);
  ended[8] = 4;
  EXPECT_FALSE(network.at(0).on_news({Rank(1), Incarnation(1)}, ended).ok());
  EXPECT_FALSE(network.at(1).on_news({Rank(2), Incarnation(1)}, ended).ok());
  EXPECT_TRUE(network.has(0, id));
  EXPECT_TRUE(network.has(1, id));
  EXPECT_TRUE(network.at(1).on_news({Rank(0), Incarnation(1)}, ended).ok());
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, OutliveABrokenConnectionToTheirMakerHoweverOften) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  for (int i = 0; i < 3 * Contexts::most_unanswered; i++) {
    network.break_connection(0, 1);
    network.deliver();
  }
  EXPECT_TRUE(network.has(0, id));
  EXPECT_TRUE(network.has(1, id));
}

TEST(Contexts, EndAlthoughTheNewsOfTheirEndIsLost) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.deliver();
  network.at(0).release(id);
  network.break_connection(0, 1);
  network.deliver();
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, EndAlthoughItIsLostThatSomebodyHasThem) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.break_connection(0, 1);
  network.at(0).release(id);
  network.deliver();
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, EndWhenTheirMakerIsGone) {
  Network network(3);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.meet(id, 1, 2);
  network.deliver();
  network.crash(0);
  network.deliver();
  EXPECT_FALSE(network.has(1, id));
  EXPECT_FALSE(network.has(2, id));
}

TEST(Contexts, EndWhenTheirMakerWasRestarted) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.deliver();
  network.restart(0);
  network.deliver();
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, EndWhenTheirMakerCannotBeReached) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  network.make_unreachable(0);
  network.meet(id, 0, 1);
  EXPECT_FALSE(network.has(1, id));
}

TEST(Contexts, OutliveTheLossOfOthers) {
  Network network(3);
  const auto id = network.at(0).make()->id();
  network.meet(id, 0, 1);
  network.deliver();
  network.crash(2);
  EXPECT_EQ(network.on_its_way(), 0U);  // Only a maker is asked.
  EXPECT_TRUE(network.has(0, id));
  EXPECT_TRUE(network.has(1, id));
}

/// Passes that the worker began before, others remember.
TEST(Contexts, CountTheirPassesAnewInAnotherLifeWhereTheyWereGivenUpAndAreMetAgain) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  const auto begin_in = [](LocalContext& context) {
    const auto part = std::make_shared<Part>();
    LocalContext::Work work;
    EXPECT_TRUE(context.begin(false, {}, part, work));
    return part->id;
  };
  const auto before = begin_in(*network.meet(id, 0, 1));
  network.at(1).release(id);
  const auto after = begin_in(*network.meet(id, 0, 1));
  EXPECT_EQ(after.number, before.number) << "for people";
  EXPECT_NE(after, before);
}

TEST(Contexts, LeaveTheirGraphsToWhoeverHasTheTimeToEndThem) {
  Network network(1);
  const auto context = network.at(0).make();
  std::weak_ptr<int> watched;
  {
    const auto graph = std::make_shared<int>();
    const auto sent = at::ones({1}).set_requires_grad(true) * 2;
    sent.register_hook([graph](const at::Tensor&) {});
    context->add(compat::make_node<SendNode>(Passage{context->id(), PairId(1), Rank(0), "forward"}, std::vector{sent}));
    watched = graph;
  }
  auto work = context->release();
  EXPECT_TRUE(work.has_graphs());
  EXPECT_FALSE(watched.expired());
  work = {};
  EXPECT_TRUE(watched.expired());
}

TEST(Contexts, RefuseNewsThatAreNone) {
  Network network(2);
  const auto id = network.at(0).make()->id();
  wire::Bytes news(9);
  std::memcpy(news.data(), &id.value, 8);
  EXPECT_EQ(network.at(0).on_news({Rank(1), {}}, news).code(), base::Code::Protocol);
  EXPECT_EQ(network.at(0).on_news({Rank(1), {}}, std::span(news).first(8)).code(), base::Code::Protocol);
}

TEST(Contexts, AnswerAPairOnceHoweverOftenItWasSaid) {
  Network network(2);
  const auto context = network.at(0).make();
  for (const uint64_t pair : {9, 7, 9, 8}) {
    network.at(0).add(context, PairId(pair), {{Rank(1), Incarnation(1)}, 1, "forward", {}, false});
  }
  std::vector<uint64_t> recvs;
  for (const auto& recv : context->look().entries.recvs) recvs.push_back(recv.pair.value);
  EXPECT_EQ(recvs, (std::vector<uint64_t>{7, 8, 9}));
}

}  // namespace
}  // namespace farad::autograd
