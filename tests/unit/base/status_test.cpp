#include "base/status.h"

#include <farad/error.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace farad::base {
namespace {

template <class Exception>
void expect_round_trip(Code code) {
  const Status status(code, "[test] what happened");
  EXPECT_THROW(status.raise(), Exception);
  const Status back = status_of(status.exception());
  EXPECT_EQ(back.code(), code) << to_string(code);
  EXPECT_EQ(back.message(), "[test] what happened");
}

TEST(Status, EveryKindBecomesItsExceptionAndBack) {
  expect_round_trip<PeerLost>(Code::PeerLost);
  expect_round_trip<Timeout>(Code::Timeout);
  expect_round_trip<RemoteError>(Code::RemoteError);
  expect_round_trip<Aborted>(Code::Aborted);
  expect_round_trip<Cancelled>(Code::Cancelled);
  expect_round_trip<Closed>(Code::Closed);
  expect_round_trip<Error>(Code::Invalid);
}

TEST(Status, OkRaisesNothing) {
  EXPECT_NO_THROW(Status().raise());
  EXPECT_TRUE(status_of(nullptr).ok());
}

TEST(Status, KindsThatOnlyMeanSomethingInsideArePlainErrors) {
  for (Code code : {Code::Protocol, Code::Denied, Code::Busy}) {
    EXPECT_THROW(Status(code, "x").raise(), Error);
    EXPECT_EQ(status_of(Status(code, "x").exception()).code(), Code::Invalid);
  }
}

TEST(Status, CodeThatIsNoneIsAnErrorToo) {
  const Status odd(static_cast<Code>(77), "[test] from a foreign program");
  EXPECT_THROW(odd.raise(), Error);
  EXPECT_EQ(status_of(odd.exception()).message(), "[test] from a foreign program");
}

TEST(Status, ForeignExceptionsKeepTheirText) {
  EXPECT_EQ(status_of(std::make_exception_ptr(std::runtime_error("boom"))).message(), "boom");
  EXPECT_FALSE(status_of(std::make_exception_ptr(17)).ok());
}

}  // namespace
}  // namespace farad::base
