#include "rpc/protocol.h"

#include <gtest/gtest.h>

#include "wire/value.h"

namespace farad::rpc {
namespace {

using base::Code;

TEST(RpcProtocol, CallIsReadAsItWasWritten) {
  CallHeader header;
  header.function = {17, 18};
  header.timeout_ms = 50;
  header.note = {'a', 'b'};
  header.makes = detail::RefId{1, 2};
  header.object = detail::RefId{3, 4};
  header.name = "shapes::area";
  header.loans = {{{5, 6}, base::Rank(7), 8, 9}};
  detail::Packet arguments;
  arguments.body = {'x', 'y', 'z'};
  const auto message = encode_call(99, header, arguments);

  CallHeader read;
  size_t at = 0;
  ASSERT_TRUE(decode_call(message, read, at).ok());
  EXPECT_EQ(message.tag, 99u);
  EXPECT_EQ(read.function, header.function);
  EXPECT_EQ(read.timeout_ms, 50u);
  EXPECT_FALSE(read.one_way);
  EXPECT_EQ(read.note, header.note);
  EXPECT_EQ(read.makes, header.makes);
  EXPECT_EQ(read.object, header.object);
  EXPECT_EQ(read.name, "shapes::area");
  ASSERT_EQ(read.loans.size(), 1u);
  EXPECT_EQ(read.loans[0].id, header.loans[0].id);
  EXPECT_EQ(read.loans[0].hold, 9u);
  EXPECT_EQ(message.body.size() - at, 3u);

  for (size_t cut = 0; cut < at; ++cut) {
    auto torn = message;
    torn.body.resize(cut);
    EXPECT_EQ(decode_call(torn, read = {}, at).code(), Code::Protocol) << cut;
  }
}

TEST(RpcProtocol, FailureIsReadAsItWasWritten) {
  const Failure failure{Code::Cancelled, "a type", "a text", {"worker1 \"g\""}, "a stack"};
  const auto message = encode_failure(5, failure);
  ReplyHeader header;
  size_t at = 0;
  ASSERT_TRUE(decode_reply(message, header, at).ok());
  ASSERT_TRUE(header.failed);
  Failure read;
  ASSERT_TRUE(decode_failure(message, at, read).ok());
  EXPECT_EQ(read.code, Code::Cancelled);
  EXPECT_EQ(read.type, "a type");
  EXPECT_EQ(read.text, "a text");
  EXPECT_EQ(read.hops, failure.hops);
  EXPECT_EQ(read.stack, "a stack");
}

// Taken for Ok, it would be a call that succeeded.
TEST(RpcProtocol, FailureWithACodeThatIsNoneIsRefused) {
  for (const Code code : {Code::Ok, static_cast<Code>(-1), static_cast<Code>(1000)}) {
    const auto message = encode_failure(5, {code, "a type", "a text", {}});
    Failure read;
    EXPECT_EQ(decode_failure(message, 1, read).code(), Code::Protocol) << static_cast<int>(code);
  }
}

}  // namespace
}  // namespace farad::rpc
