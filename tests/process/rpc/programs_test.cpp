// Two programs in one group that have nothing in common but names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "process/command/command.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Programs : public testing::TestWithParam<std::string> {};

TEST_P(Programs, CallEachOtherByNameAndAreToldThatFunctionsAreOfAnotherBuild) {
  const TemporaryDirectory directory;
  const std::string meeting = "file://" + directory.file("meeting");
  Command has({PROGRAM_THAT_HAS, meeting, GetParam()});
  Command calls({PROGRAM_THAT_CALLS, meeting, GetParam()});

  EXPECT_EQ(calls.finish(), 0) << calls.err();
  EXPECT_EQ(has.finish(), 0) << has.err();

  EXPECT_THAT(lines_of(calls.out()),
              ElementsAre("area: 7", "grid: 4.5",
                          AllOf(HasSubstr("same build"), HasSubstr("perimeter"), HasSubstr("worker1"))));
}

INSTANTIATE_TEST_SUITE_P(Each, Programs, testing::Values("shm", "tcp"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
