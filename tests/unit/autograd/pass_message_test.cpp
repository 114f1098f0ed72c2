#include <gtest/gtest.h>

#include <random>

#include "autograd/pass/message.h"

namespace farad::autograd {
namespace {

PassMessage sample(PassKind kind) {
  PassMessage message;
  message.kind = kind;
  message.context = ContextId(-5);
  message.pass = {base::Rank(3), 1ULL << 40, 1ULL << 63};
  message.fast = true;
  switch (kind) {
    case PassKind::Start:
      message.opens = true;
      message.options = {'a', '\0', 'b'};
      break;
    case PassKind::Which:
    case PassKind::Those:
    case PassKind::Claim:
      message.answers = {{PairId(9)}, {PairId(10)}};
      break;
    case PassKind::Grads:
      message.answers = {{PairId(1ULL << 60), no_node, 2}, {PairId(2)}, {PairId(3), no_node, 1}};
      message.states = {TensorState::Tensor, TensorState::Null, TensorState::Undefined};
      break;
    case PassKind::Done:
      message.peers = {base::Rank(0), base::Rank(65535)};
      message.left_out = {base::Rank(7)};
      message.channels = {{base::Rank(7), 1, 2, 0}};
      break;
    case PassKind::Report:
      message.number = 12;
      message.complete = true;
      message.channels = {{base::Rank(1), 2, 3, 4}};
      message.left_out = {base::Rank(7)};
      break;
    case PassKind::Blame:
      message.blamed = base::Rank(8);
      break;
    case PassKind::Ask:
      message.number = 99;
      message.orphaned = true;
      break;
    case PassKind::Over:
      message.number = 99;
      message.verdict = Verdict::Dropped;
      [[fallthrough]];
    case PassKind::Fail:
    case PassKind::Abort:
      message.failure = {base::Code::PeerLost, base::Rank(4), "worker 4 was lost"};
      break;
    case PassKind::Commit:
      break;
  }
  return message;
}

std::vector<PassKind> all_kinds() {
  std::vector<PassKind> kinds;
  for (uint8_t i = 0; i <= static_cast<uint8_t>(PassKind::Over); ++i) kinds.push_back(static_cast<PassKind>(i));
  return kinds;
}

/// As bytes: what is not on the wire does not count.
std::vector<char> bytes_of(const PassMessage& message) {
  std::vector<char> bytes;
  encode(message, bytes);
  return bytes;
}

TEST(PassMessages, EveryKindComesBackAsItWent) {
  for (const auto kind : all_kinds()) {
    const auto bytes = bytes_of(sample(kind));
    PassMessage back;
    const auto status = decode(bytes.data(), bytes.size(), back);
    ASSERT_TRUE(status.ok()) << to_string(kind) << ": " << status.message();
    EXPECT_EQ(bytes_of(back), bytes) << to_string(kind);
    EXPECT_EQ(back.pass, sample(kind).pass);
    EXPECT_EQ(back.failure.what, sample(kind).failure.what);
    EXPECT_EQ(back.peers, sample(kind).peers);
    EXPECT_EQ(back.channels.size(), sample(kind).channels.size());
    EXPECT_EQ(back.states, sample(kind).states);
  }
}

TEST(PassMessages, ANullTakesTwelveBytes) {
  auto grads = sample(PassKind::Grads);
  const auto before = bytes_of(grads).size();
  grads.answers.push_back({PairId(77)});
  EXPECT_EQ(bytes_of(grads).size(), before + 12);
}

TEST(PassMessages, WhatIsCutOffOrHasMoreIsRefused) {
  for (const auto kind : all_kinds()) {
    auto bytes = bytes_of(sample(kind));
    PassMessage back;
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(bytes.data(), size, back).ok()) << to_string(kind) << " cut to " << size;
    }
    bytes.push_back(0);
    EXPECT_FALSE(decode(bytes.data(), bytes.size(), back).ok()) << to_string(kind) << " with more";
  }
}

TEST(PassMessages, HugeCountsAreRefusedWithoutMemory) {
  auto bytes = bytes_of(sample(PassKind::Grads));
  for (size_t at = 20; at + 4 <= bytes.size(); ++at) {
    auto hostile = bytes;
    std::fill_n(hostile.begin() + static_cast<ptrdiff_t>(at), 4, '\xff');
    PassMessage back;
    (void)decode(hostile.data(), hostile.size(), back).ok();
    EXPECT_LT(back.answers.size(), 100U);
    EXPECT_LT(back.states.size(), 100U);
  }
}

TEST(PassMessages, AnyBytesAreEitherAMessageOrRefused) {
  std::mt19937 random(1);
  int good = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto kinds = all_kinds();
    auto bytes = bytes_of(sample(kinds[random() % kinds.size()]));
    for (unsigned flips = random() % 4; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    PassMessage back;
    if (!decode(bytes.data(), bytes.size(), back).ok()) continue;
    ++good;
    PassMessage again;
    const auto canonical = bytes_of(back);
    ASSERT_TRUE(decode(canonical.data(), canonical.size(), again).ok()) << i;
    ASSERT_EQ(bytes_of(again), canonical) << i;
  }
  EXPECT_GT(good, 1000);
}

}  // namespace
}  // namespace farad::autograd
