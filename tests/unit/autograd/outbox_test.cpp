// What goes together: messages of passes that wait for each other, and how they look on the wire.

#include "autograd/outbox.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "autograd/pass_mail.h"

namespace farad::autograd {
namespace {

using base::Rank;

class OutboxTest : public testing::Test {
 protected:
  static std::shared_ptr<LocalContext> make_context(int64_t id) {
    auto group = std::make_shared<Group>();
    return std::make_shared<LocalContext>(ContextId(id), std::move(group));
  }
  bool keep(uint16_t to, const std::shared_ptr<LocalContext>& context, PassKind kind) {
    Outbox::Letter letter{context, {}, {}};
    letter.message.kind = kind;
    return outbox_.keep(Rank(to), std::move(letter));
  }
  static std::vector<PassKind> kinds(const Outbox::Parcel& parcel) {
    std::vector<PassKind> all;
    for (const auto& letter : parcel.letters) all.push_back(letter.message.kind);
    return all;
  }

  Outbox outbox_;
  const std::shared_ptr<LocalContext> a_ = make_context(1), b_ = make_context(2);
};

TEST_F(OutboxTest, WhatOneContextSendsToOneWorkerGoesTogetherInItsOrder) {
  (void)keep(1, a_, PassKind::Start);
  (void)keep(2, a_, PassKind::Start);
  (void)keep(1, b_, PassKind::Start);
  (void)keep(1, a_, PassKind::Grads);

  const auto parcels = outbox_.take(*a_);
  ASSERT_EQ(parcels.size(), 2u);
  EXPECT_EQ(parcels[0].to, Rank(1));
  EXPECT_EQ(kinds(parcels[0]), (std::vector{PassKind::Start, PassKind::Grads}));
  EXPECT_EQ(parcels[1].to, Rank(2));
  EXPECT_TRUE(outbox_.take(*a_).empty());
  EXPECT_EQ(outbox_.take(*b_).size(), 1u);
}

TEST_F(OutboxTest, CommitsWaitForACallOfTheirContextToTheirWorker) {
  (void)keep(1, a_, PassKind::Commit);
  (void)keep(1, b_, PassKind::Commit);
  EXPECT_TRUE(outbox_.take(*a_).empty());
  EXPECT_TRUE(outbox_.take_commits(*a_, Rank(2)).empty());

  const auto parcels = outbox_.take_commits(*a_, Rank(1));
  ASSERT_EQ(parcels.size(), 1u);
  ASSERT_EQ(parcels[0].letters.size(), 1u);
  EXPECT_EQ(parcels[0].letters[0].context, a_);
  EXPECT_EQ(outbox_.take_commits(*b_, Rank(1)).size(), 1u);
}

TEST_F(OutboxTest, OneOfThoseWhoKeepSeesToItThatAllIsSent) {
  EXPECT_TRUE(keep(1, a_, PassKind::Grads));
  EXPECT_FALSE(keep(1, b_, PassKind::Commit));
  EXPECT_FALSE(keep(1, a_, PassKind::Commit));
  const auto all = outbox_.take_all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].letters.size(), 2u) << "commits of all contexts go together";
  EXPECT_TRUE(keep(1, a_, PassKind::Commit)) << "after that, somebody has to again";
}

PassMail grads(int64_t context, std::vector<TensorState> states) {
  PassMail mail;
  mail.message.kind = PassKind::Grads;
  mail.message.context = ContextId(context);
  mail.message.answers.push_back({PairId(7), no_node, static_cast<uint32_t>(states.size())});
  mail.message.states = std::move(states);
  mail.living = true;
  return mail;
}

TEST(PassMailTest, SeveralAreReadAsTheyWereWritten) {
  PassMail done;
  done.message.kind = PassKind::Done;
  done.message.peers = {Rank(3)};
  const std::vector<PassMail> sent{grads(5, {TensorState::Null, TensorState::Tensor}), done};
  const auto message = encode(sent, {at::ones({1})});

  std::vector<PassMail> read;
  ASSERT_TRUE(decode(message, read).ok());
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].tensors(), 1u);
  EXPECT_TRUE(read[0].living);
  EXPECT_EQ(read[0].message.states, sent[0].message.states);
  EXPECT_FALSE(read[1].living);
  EXPECT_EQ(read[1].message.peers, done.message.peers);
}

TEST(PassMailTest, WhatIsCutOffIsRefused) {
  const auto whole = encode({grads(5, {TensorState::Tensor}), grads(6, {TensorState::Null})}, {at::ones({1})});
  int read_less = 0;
  for (size_t size = 1; size < whole.body.size(); size++) {
    auto cut = whole;
    cut.body.resize(size);
    std::vector<PassMail> read;
    read_less += decode(cut, read).ok();
  }
  EXPECT_EQ(read_less, 1) << "only between the two can it be cut unnoticed";
}

TEST(PassMailTest, AsManyTensorsAsAreSpokenOfHaveToBeThere) {
  const std::vector<PassMail> one{grads(5, {TensorState::Tensor})};
  std::vector<PassMail> read;
  EXPECT_EQ(decode(encode(one, {}), read).code(), base::Code::Protocol);
  EXPECT_EQ(decode(encode(one, {at::ones({1}), at::ones({1})}), read).code(), base::Code::Protocol);
}

}  // namespace
}  // namespace farad::autograd
