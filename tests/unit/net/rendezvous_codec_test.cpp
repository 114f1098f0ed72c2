#include "net/rendezvous/codec.h"

#include <gtest/gtest.h>

#include "unit/net/rendezvous_support.h"

namespace farad::net::meeting {
namespace {

using test::member;

void expect_same(const Member& a, const Member& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.machine, b.machine);
  EXPECT_EQ(a.addresses, b.addresses);
  EXPECT_EQ(a.birth, b.birth);
  EXPECT_EQ(a.version, b.version);
}

TEST(RendezvousCodec, WhatIsSaidIsWhatIsHeard) {
  Member self = member(65535);
  self.birth = ~uint64_t{0};
  Ask ask;
  ASSERT_TRUE(decode(encode(Ask{self, 65536, 1234}), ask).ok());
  expect_same(ask.self, self);
  EXPECT_EQ(ask.size, 65536);
  EXPECT_EQ(ask.patience_ms, 1234);

  Answer answer;
  ASSERT_TRUE(
      decode(encode(Answer{.kind = Answer::Kind::Complete, .members = {member(0), self}, .rejoined = true}), answer)
          .ok());
  EXPECT_EQ(answer.kind, Answer::Kind::Complete);
  ASSERT_EQ(answer.members.size(), 2u);
  expect_same(answer.members[1], self);
  EXPECT_TRUE(answer.rejoined);

  Note note;
  ASSERT_TRUE(decode(encode(Note{.kind = Note::Kind::Spoilt, .status = {base::Code::Invalid, "why"}}), note).ok());
  EXPECT_EQ(note.status.code(), base::Code::Invalid);
  EXPECT_EQ(note.status.message(), "why");
}

TEST(RendezvousCodec, EveryTruncationIsMalformed) {
  const auto whole = encode(Ask{member(3), 4, -1});
  for (size_t length = 0; length < whole.size(); ++length) {
    Ask ask;
    EXPECT_EQ(decode(std::string_view(whole).substr(0, length), ask).code(), base::Code::Protocol) << length;
  }
  Ask ask;
  EXPECT_EQ(decode(whole + "x", ask).code(), base::Code::Protocol);
}

TEST(RendezvousCodec, EveryChangedByteIsTakenOrRefusedButNeverMore) {
  const auto whole = encode(Answer{.kind = Answer::Kind::Complete, .members = {member(0), member(1)}});
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int value = 0; value < 256; value += 5) {
      auto changed = whole;
      changed[at] = static_cast<char>(value);
      Answer answer;
      const auto status = decode(changed, answer);
      EXPECT_TRUE(status.ok() || status.code() == base::Code::Protocol);
    }
  }
}

TEST(RendezvousCodec, AnnouncedLengthsAllocateNothing) {
  Ask ask;
  EXPECT_EQ(decode(std::string("\xdd\xff\xff\xff\xff", 5), ask).code(), base::Code::Protocol);  // an array of 4 Gi
  EXPECT_EQ(decode(std::string("\xdb\xff\xff\xff\xff", 5), ask).code(), base::Code::Protocol);  // a text of 4 GiB
  EXPECT_EQ(decode(std::string(60'000, '\x91'), ask).code(), base::Code::Protocol);             // nested 60,000 deep
}

TEST(RendezvousCodec, ANewcomerOfAnotherVersionIsToldSo) {
  auto bytes = encode(Ask{member(0), 1, -1});
  bytes[1] = 2;
  Ask ask;
  const auto status = decode(bytes, ask);
  EXPECT_EQ(status.code(), base::Code::Protocol);
  EXPECT_NE(status.message().find("version 2"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace farad::net::meeting
