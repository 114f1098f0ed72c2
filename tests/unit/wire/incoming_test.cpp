#include "wire/incoming.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "unit/wire/stream.h"
#include "wire/bytes.h"
#include "wire/device.h"
#include "wire/dtype.h"

namespace farad::wire {
namespace {

using test::bytes_of;
using test::message_of;
using test::refusal;
using test::with_tensors;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Message mixed() {
  auto message = with_tensors({at::rand({5}), at::zeros({0, 3}), at::Tensor(), at::rand({2, 3}).t(),
                               at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::rand({2}), {3}), at::rand({})});
  message.tag = 0x0123456789abcdef;
  message.body = {'b', 'o', 'd', 'y'};
  return message;
}

template <class T>
Bytes patched(Bytes bytes, size_t at, T value) {
  put(bytes.data() + at, value);
  return bytes;
}

// Where things are, according to the specification.
constexpr size_t version_at = 4, flags_at = 6, table_at = 8, body_at = 12, payload_at = 16, first_spec = 32;

TEST(Incoming, AMessageArrivesWholeInWhateverPiecesItCame) {
  const auto sent = mixed();
  const auto bytes = bytes_of(sent);
  for (const size_t step : {size_t{1}, size_t{3}, size_t{32}, size_t{100}, SIZE_MAX}) {
    const auto received = message_of(bytes, {}, step);
    EXPECT_EQ(received.kind, sent.kind);
    EXPECT_EQ(received.tag, sent.tag);
    EXPECT_EQ(received.body, sent.body);
    ASSERT_EQ(received.tensors.size(), sent.tensors.size());
    EXPECT_TRUE(at::equal(received.tensors[0], sent.tensors[0]));
    EXPECT_FALSE(received.tensors[2].defined());
    EXPECT_TRUE(at::equal(received.tensors[3], sent.tensors[3]));
    EXPECT_TRUE(at::equal(received.tensors[5], sent.tensors[5]));
  }
}

TEST(Incoming, TensorsOfADeviceComeWithItsName) {
  auto sent = mixed();
  EXPECT_TRUE(message_of(bytes_of(sent)).devices.empty());
  sent.devices.assign(sent.tensors.size(), c10::kCPU);
  sent.devices[3] = sent.devices[4] = c10::Device(c10::kCUDA, 127);

  auto received = message_of(bytes_of(sent));

  EXPECT_EQ(received.devices, sent.devices);
  const auto status = to_devices(received);  // Nobody has that many.
  EXPECT_EQ(status.code(), base::Code::Invalid);
  EXPECT_THAT(status.message(),
              AllOf(StartsWith("[wire] tensor 3"), HasSubstr("cuda:127"), HasSubstr("send its cpu()")));
  EXPECT_TRUE(at::equal(received.tensors[3], sent.tensors[3]));
}

TEST(Incoming, FeedStopsAtTheEndOfEachMessage) {
  Bytes stream;
  for (int i = 0; i < 3; ++i) {
    auto message = mixed();
    message.tag = i;
    const auto bytes = bytes_of(message);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  Message empty;
  empty.tag = 3;
  const auto last = bytes_of(empty);
  stream.insert(stream.end(), last.begin(), last.end());

  Incoming in({}, BufferPool::make(0));
  std::span<const char> rest(stream);
  for (uint64_t i = 0; i < 4; ++i) {
    size_t consumed = 0;
    ASSERT_TRUE(in.feed(rest, consumed).ok());
    ASSERT_TRUE(in.complete());
    EXPECT_EQ(in.take().tag, i);
    rest = rest.subspan(consumed);
  }
  EXPECT_TRUE(rest.empty());
}

TEST(Incoming, EveryTruncationLeavesItWaitingForMore) {
  const auto bytes = bytes_of(mixed());
  for (size_t length = 0; length < bytes.size(); ++length) {
    Incoming in({}, BufferPool::make(0));
    size_t consumed = 0;
    ASSERT_TRUE(in.feed(std::span(bytes).first(length), consumed).ok());
    EXPECT_EQ(consumed, length);
    EXPECT_FALSE(in.complete());
    EXPECT_FALSE(in.target().empty());
  }
}

TEST(Incoming, AnErrorIsFinal) {
  Incoming in({}, BufferPool::make(0));
  size_t consumed = 0;
  const Bytes garbage(32, 'x');
  EXPECT_FALSE(in.feed(garbage, consumed).ok());
  EXPECT_FALSE(in.feed(bytes_of(mixed()), consumed).ok());
  EXPECT_FALSE(in.complete());
}

TEST(Incoming, WhatIsNotOursIsRefusedByTheFirstBytes) {
  const auto good = bytes_of(mixed());
  EXPECT_THAT(refusal(Bytes(32, 'G')), AllOf(StartsWith("[wire] refused a frame"), HasSubstr("0x47474747")));
  EXPECT_THAT(refusal(patched<uint8_t>(good, version_at, 9)), HasSubstr("version 9, ours is 1"));
  EXPECT_THAT(refusal(patched<uint16_t>(good, flags_at, 1)), HasSubstr("flags"));
}

TEST(Incoming, LengthsBeyondTheLimitsAreRefusedBeforeAnythingIsAllocated) {
  const auto good = bytes_of(mixed());
  Limits limits;
  EXPECT_THAT(refusal(patched<uint32_t>(good, body_at, limits.body_bytes + 1)), HasSubstr("a body of 268435457 bytes"));
  EXPECT_THAT(refusal(patched<uint64_t>(good, payload_at, UINT64_MAX)),
              HasSubstr("tensor data of 18446744073709551615"));
  limits.tensors = 2;
  EXPECT_THAT(refusal(good, limits), HasSubstr("tensor"));
  limits = {};
  limits.dims = 1;
  EXPECT_THAT(refusal(good, limits), HasSubstr("2 dimensions, the limit is 1"));
}

TEST(Incoming, LengthsMustAgreeWithTheTable) {
  const auto good = bytes_of(with_tensors({at::zeros({4})}));
  EXPECT_THAT(refusal(patched<uint64_t>(good, payload_at, 15)), HasSubstr("more data than the frame"));
  EXPECT_THAT(refusal(patched<uint64_t>(good, payload_at, 17)),
              HasSubstr("17 bytes of tensor data, but its tensors have 16"));
  EXPECT_THAT(refusal(patched<uint32_t>(good, table_at, 0)), HasSubstr("but no tensors"));
  EXPECT_THAT(refusal(patched<uint32_t>(good, table_at, 11)), HasSubstr("cut off"));
}

TEST(Incoming, HostileTensorsAreRefusedByName) {
  const auto good = bytes_of(with_tensors({at::zeros({4, 2}).t()}));  // dtype, layout, flags, dims, 2 sizes, 2 strides
  const auto refused = [&](auto bytes) { return refusal(bytes); };
  EXPECT_THAT(refused(patched<uint8_t>(good, first_spec, 200)), HasSubstr("tensor 0 has the unknown dtype 200"));
  EXPECT_THAT(refused(patched<uint8_t>(good, first_spec + 1, 3)), HasSubstr("unknown layout 3"));
  EXPECT_THAT(refused(patched<uint8_t>(good, first_spec + 2, 0x22)), HasSubstr("flags"));
  EXPECT_THAT(refused(patched<uint8_t>(good, first_spec + 3, 65)), HasSubstr("65 dimensions"));
  EXPECT_THAT(refused(patched<int64_t>(good, first_spec + 4, -2)), HasSubstr("a dimension of -2 elements"));
  EXPECT_THAT(refused(patched<int64_t>(good, first_spec + 4, INT64_MAX)), HasSubstr("larger than 64 bits"));
  EXPECT_THAT(refused(patched<int64_t>(good, first_spec + 20, 0)), HasSubstr("overlap or leave gaps"));
  EXPECT_THAT(refused(patched<int64_t>(good, first_spec + 28, 1'000'000)), HasSubstr("overlap or leave gaps"));
  EXPECT_THAT(refused(patched<int64_t>(good, first_spec + 28, -2)), HasSubstr("overlap or leave gaps"));
  const auto integers = bytes_of(with_tensors({at::zeros({1}, at::kInt)}));
  EXPECT_THAT(refused(patched<uint8_t>(integers, first_spec + 2, 1)),
              HasSubstr("requires a gradient, which Int cannot"));
  const auto undefined = bytes_of(with_tensors({at::Tensor()}));
  EXPECT_THAT(refused(patched<uint8_t>(undefined, first_spec, 7)), HasSubstr("undefined"));
}

TEST(Incoming, ZeroElementsDoNotHideAnOverflow) {
  const auto good = bytes_of(with_tensors({at::zeros({0, 1, 1})}));
  const auto huge = patched<int64_t>(patched<int64_t>(good, first_spec + 12, INT64_MAX), first_spec + 20, 3);
  EXPECT_THAT(refusal(huge), HasSubstr("larger than 64 bits"));
}

TEST(Incoming, SparseIndicesAreCheckedBeforeAKernelSeesThem) {
  const auto sparse = at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::zeros({2}), {3});
  const auto good = bytes_of(with_tensors({sparse}));
  const size_t indices_at = first_spec + 4 + 8 + 12, flags_of_tensor = first_spec + 2;
  EXPECT_THAT(refusal(patched<int64_t>(good, indices_at, 3)), HasSubstr("the index 3 in a dimension of 3"));
  EXPECT_THAT(refusal(patched<int64_t>(good, indices_at, -1)), HasSubstr("the index -1"));
  EXPECT_THAT(refusal(patched<uint8_t>(good, flags_of_tensor, 4)), HasSubstr("coalesced"));
  EXPECT_THAT(refusal(patched<uint32_t>(good, first_spec + 12, 2)), HasSubstr("2 sparse dimensions of 1"));
  EXPECT_THAT(refusal(patched<int64_t>(good, first_spec + 16, int64_t{1} << 62)), HasSubstr("larger than 64 bits"));
}

TEST(Incoming, EntriesWithoutDataAreRefused) {
  // No sparse dimension and values of no elements: any number of entries would fit into no bytes at all.
  const auto empty = at::sparse_coo_tensor(at::zeros({1, 0}, at::kLong), at::zeros({0, 0}), {3, 0});
  auto bytes = bytes_of(with_tensors({empty}));
  bytes = patched<uint32_t>(bytes, first_spec + 4 + 16, 0);
  bytes = patched<int64_t>(bytes, first_spec + 4 + 16 + 4, int64_t{1} << 40);
  EXPECT_THAT(refusal(bytes), HasSubstr("entries without data"));
}

TEST(Incoming, ADtypeOfALaterLibtorchIsRefusedByName) {
  const auto bytes = patched<uint8_t>(bytes_of(with_tensors({at::zeros({1}, at::kByte)})), first_spec, 14);
  const auto why = refusal(bytes);
  if (dtype_from_wire(14) == c10::ScalarType::Undefined) {
    EXPECT_THAT(why, AllOf(HasSubstr("float8_e5m2"), HasSubstr("does not have")));
  } else {
    EXPECT_EQ(why, "");
  }
}

TEST(Incoming, AnUnknownTrailerIsRefused) {
  const auto bytes = bytes_of(with_tensors({at::zeros({4})}));
  EXPECT_THAT(refusal(patched<uint32_t>(bytes, bytes.size() - 4, 5)), HasSubstr("no trailer"));
}

TEST(Incoming, AMessageTakenBackIsTornAndTheNextOneArrives) {
  auto bytes = bytes_of(with_tensors({at::zeros({4})}));
  put(bytes.data() + bytes.size() - 4, frame::Trailer::TakenBack);
  Incoming in({}, BufferPool::make(0));
  ASSERT_TRUE(test::read_all(in, bytes, SIZE_MAX).ok());
  EXPECT_TRUE(in.torn());
  (void)in.take();
  ASSERT_TRUE(test::read_all(in, bytes_of(mixed()), SIZE_MAX).ok());
  EXPECT_FALSE(in.torn());
  EXPECT_EQ(in.take().tensors.size(), 6u);
}

TEST(Incoming, ALongBodyTakesMemoryOnlyAsItArrives) {
  Message message;
  message.body = Bytes(1 << 20, 'x');
  const auto bytes = bytes_of(message);
  Incoming in({}, BufferPool::make(0));
  size_t consumed = 0;
  ASSERT_TRUE(in.feed(std::span(bytes).first(frame::header_bytes), consumed).ok());
  EXPECT_LE(in.target().size(), 64u << 10);
  ASSERT_TRUE(in.feed(std::span(bytes).subspan(frame::header_bytes), consumed).ok());
  EXPECT_EQ(in.take().body, message.body);
}

TEST(Incoming, ReceivedMemoryIsUsedAgain) {
  const auto pool = BufferPool::make(64 << 20);
  Incoming in({}, pool);
  const auto bytes = bytes_of(with_tensors({at::rand({1 << 18})}));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(test::read_all(in, bytes, SIZE_MAX).ok());
    (void)in.take();
  }
  EXPECT_EQ(pool->stats().fresh, 1u);
  EXPECT_EQ(pool->stats().recycled, 9u);
  EXPECT_EQ(pool->stats().lent_bytes, 0u);
}

}  // namespace
}  // namespace farad::wire
