// What travels, and how it arrives.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <farad/error.h>

#include <atomic>
#include <map>

#include "suites/transport_suite.h"

namespace farad::test {
namespace {

using base::Rank;

auto so_many(size_t messages) {
  return [messages](const Recorder& heard) { return heard.messages() >= messages; };
}

TEST_P(TransportSuite, SmallMessageArrivesAsItWasSent) {
  with_workers(2, [](Workers& workers) {
    wire::Message message;
    message.kind = 7;
    message.tag = 0xfedcba9876543210;
    message.body = {'h', 'e', 'l', 'l', 'o', '\0', '!'};
    const auto body = message.body;

    workers[0].send(Rank(1), std::move(message));

    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    const auto history = workers.heard(1).snapshot();
    EXPECT_EQ(history[0].peer.rank, Rank(0));
    EXPECT_EQ(history[0].message.kind, 7);
    EXPECT_EQ(history[0].message.tag, 0xfedcba9876543210);
    EXPECT_EQ(history[0].message.body, body);
    EXPECT_TRUE(history[0].message.tensors.empty());
  });
}

TEST_P(TransportSuite, EmptyMessageArrives) {
  with_workers(2, [](Workers& workers) {
    workers[1].send(Rank(0), {});

    ASSERT_TRUE(workers.wait_until(0, so_many(1)));
    EXPECT_TRUE(workers.heard(0).snapshot()[0].message.body.empty());
  });
}

// Whoever drives takes in a bounded number at a time, and goes when it has what it waited for.
TEST_P(TransportSuite, WhatADriverLeavesLyingIsTakenInByTheResident) {
  with_workers(2, [](Workers& workers) {
    constexpr size_t many = 200;
    auto& fabric = workers[1];
    const auto all_came = fabric.runtime().make_parker();
    const auto first_came = fabric.driver().make_waiter();
    std::atomic<size_t> count{0};
    workers.heard(1).at_message = [&](net::Peer, const wire::Message&) {
      first_came->complete();
      if (++count == many) all_came->unpark();
    };
    const net::Driver::Reservation others_sleep(fabric.driver());
    for (size_t i = 0; i < many; ++i) workers[0].send(Rank(1), {});

    ASSERT_TRUE(fabric.driver().wait(*first_came, base::never));

    EXPECT_TRUE(all_came->park(fabric.runtime().now() + std::chrono::seconds(30)));
  });
}

std::vector<std::pair<std::string, at::Tensor>> tensors_of_every_kind() {
  std::vector<std::pair<std::string, at::Tensor>> kinds;
  for (auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                     at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    kinds.emplace_back(c10::toString(dtype), at::randint(0, 2, {3, 5}, at::kFloat).to(dtype));
  }
  const auto square = at::rand({6, 6});
  kinds.emplace_back("transposed", square.t());
  kinds.emplace_back("view with gaps", square.slice(1, 0, 6, 2));
  kinds.emplace_back("part of a storage", square.select(0, 3));
  kinds.emplace_back("expanded", at::rand({1, 4}).expand({3, 4}));
  kinds.emplace_back("conjugated", at::rand({4}, at::kComplexFloat).conj());
  kinds.emplace_back("no dimension", at::full({}, 2.5));
  kinds.emplace_back("no element", at::empty({0, 7}));
  kinds.emplace_back("sparse", at::sparse_coo_tensor(at::arange(0, 4).reshape({2, 2}), at::rand({2, 3}), {5, 5, 3}));
  kinds.emplace_back("sparse without entries", at::zeros({4, 4}).to_sparse());
  return kinds;
}

TEST_P(TransportSuite, TensorOfEveryKindArrivesAsItWas) {
  with_workers(2, [](Workers& workers) {
    const auto kinds = tensors_of_every_kind();
    wire::Message message;
    for (const auto& [name, tensor] : kinds) message.tensors.push_back(tensor);

    workers[0].send(Rank(1), std::move(message));

    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    const auto arrived = workers.heard(1).snapshot()[0].message.tensors;
    ASSERT_EQ(arrived.size(), kinds.size());
    for (size_t i = 0; i < kinds.size(); ++i) {
      const auto& [name, sent] = kinds[i];
      SCOPED_TRACE(name);
      EXPECT_EQ(arrived[i].scalar_type(), sent.scalar_type());
      EXPECT_EQ(arrived[i].sizes(), sent.sizes());
      ASSERT_EQ(arrived[i].layout(), sent.layout());
      const bool sparse = sent.is_sparse();
      EXPECT_TRUE(at::equal(sparse ? arrived[i].to_dense() : arrived[i], sparse ? sent.to_dense() : sent));
    }
  });
}

TEST_P(TransportSuite, ArrivedTensorIsAValueOfItsOwn) {
  with_workers(2, [](Workers& workers) {
    auto source = at::full({1000}, 1.0);
    wire::Message message;
    message.tensors.push_back(source);
    workers[0].send(Rank(1), std::move(message));
    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    const auto arrived = workers.heard(1).snapshot()[0].message.tensors[0];

    source.fill_(2.0);

    EXPECT_TRUE(at::equal(arrived, at::full({1000}, 1.0)));
  });
}

TEST_P(TransportSuite, MemoryThatATensorOnlyBorrowsIsNotHandedOver) {
  for (int to : {0, 1}) {
    with_workers(2, [to](Workers& workers) {
      std::vector<float> buffer(1000, 1.0f);  // Outlives the tensor and everybody it is sent to, and is used again.
      wire::Message message;
      message.tensors.push_back(at::from_blob(buffer.data(), {1000}, at::kFloat));
      workers[0].send(Rank(to), std::move(message));
      ASSERT_TRUE(workers.wait_until(to, so_many(1)));
      const auto arrived = workers.heard(to).snapshot()[0].message.tensors[0];

      std::fill(buffer.begin(), buffer.end(), 2.0f);

      EXPECT_TRUE(at::equal(arrived, at::full({1000}, 1.0)));
    });
  }
}

TEST_P(TransportSuite, RequiresGradTravelsAndHistoryDoesNot) {
  with_workers(2, [](Workers& workers) {
    wire::Message message;
    auto leaf = at::rand({3}).set_requires_grad(true);
    message.tensors = {leaf.mul(2), at::rand({3})};
    ASSERT_TRUE(message.tensors[0].grad_fn());

    workers[0].send(Rank(1), std::move(message));

    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    const auto arrived = workers.heard(1).snapshot()[0].message.tensors;
    EXPECT_TRUE(arrived[0].requires_grad());
    EXPECT_TRUE(arrived[0].is_leaf());
    EXPECT_FALSE(arrived[1].requires_grad());
  });
}

TEST_P(TransportSuite, WhatCannotTravelIsRefusedAndHarmsNothing) {
  const auto small = [](net::FabricOptions& options) { options.limits.body_bytes = 1000; };
  with_workers(2, small, [](Workers& workers) {
    wire::Message quantized = tagged(1), over_limit = tagged(2);
    quantized.tensors.push_back(at::quantize_per_tensor(at::rand({3}), 0.1, 0, at::kQInt8));
    over_limit.body.resize(1001);

    EXPECT_THROW(workers[0].send(Rank(1), std::move(quantized)), Error);
    EXPECT_THROW(workers[0].send(Rank(1), std::move(over_limit)), Error);
    EXPECT_THROW(workers[0].send(Rank(2), tagged(3)), Error) << "there is no such rank";
    workers[0].send(Rank(1), tagged(4));

    ASSERT_TRUE(workers.wait_until(1, so_many(1)));
    EXPECT_EQ(workers.heard(1).snapshot()[0].message.tag, 4u);
  });
}

TEST_P(TransportSuite, ManyMessagesOfManyThreadsArriveOnceEach) {
  constexpr int size = 3, threads = 4, each = 100;
  with_workers(size, [](Workers& workers) {
    std::vector<std::unique_ptr<base::Thread>> senders;
    for (int from = 0; from < size; ++from) {
      for (int thread = 0; thread < threads; ++thread) {
        senders.push_back(workers.thread([&workers, from, thread] {
          for (int i = 0; i < each; ++i) {
            for (int to = 0; to < size; ++to) {
              workers[from].send(Rank(to), filled((from * threads + thread) * each + i, i));
            }
          }
        }));
      }
    }
    for (int to = 0; to < size; ++to) ASSERT_TRUE(workers.wait_until(to, so_many(size * threads * each)));
    senders.clear();

    for (int to = 0; to < size; ++to) {
      std::map<uint64_t, int> times;
      for (const auto& heard : workers.heard(to).snapshot()) {
        ASSERT_EQ(heard.what, Recorder::Heard::What::Message) << heard.why.message();
        EXPECT_EQ(heard.message.tag / (threads * each), heard.peer.rank.value);
        EXPECT_TRUE(is_filled(heard.message, static_cast<int64_t>(heard.message.tag % each)));
        ++times[heard.message.tag];
      }
      EXPECT_EQ(times.size(), size_t{size * threads * each});
      for (const auto& [tag, count] : times) EXPECT_EQ(count, 1) << "tag " << tag;
    }
  });
}

TEST_P(TransportSuite, HandlersMayAnswerAtOnce) {
  with_workers(2, [](Workers& workers) {
    constexpr uint64_t rounds = 500;
    for (int rank : {0, 1}) {
      workers.heard(rank).at_message = [&workers, rank](net::Peer from, const wire::Message& message) {
        if (message.tag > 0) workers[rank].post(from.rank, tagged(message.tag - 1)).status.raise();
      };
    }

    workers[0].send(Rank(1), tagged(rounds));

    EXPECT_TRUE(workers.wait_until(0, so_many(rounds / 2)));
    EXPECT_TRUE(workers.wait_until(1, so_many(rounds / 2 + 1)));
  });
}

TEST_P(TransportSuite, LargeMessagesCrossEachOther) {
  constexpr int64_t floats = (64 << 20) / 4 + 1;
  with_workers(2, [](Workers& workers) {
    workers[0].send(Rank(1), filled(3, floats));
    workers[1].send(Rank(0), filled(4, floats));

    for (int rank : {0, 1}) {
      ASSERT_TRUE(workers.wait_until(rank, so_many(1)));
      EXPECT_TRUE(is_filled(workers.heard(rank).snapshot()[0].message, floats));
    }
  });
}

TEST_P(TransportSuite, MessageToOneselfIsAValueToo) {
  with_workers(1, [](Workers& workers) {
    auto source = at::full({10}, 1.0);
    wire::Message message;
    message.tensors.push_back(source);
    workers[0].send(Rank(0), std::move(message));
    ASSERT_TRUE(workers.wait_until(0, so_many(1)));

    source.fill_(2.0);

    EXPECT_TRUE(at::equal(workers.heard(0).snapshot()[0].message.tensors[0], at::full({10}, 1.0)));
  });
}

}  // namespace
}  // namespace farad::test
