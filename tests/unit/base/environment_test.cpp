#include "base/environment.h"

#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace farad::base {
namespace {

using ::testing::HasSubstr;

TEST(EnvironmentTable, NamesEachVariableOnceAndSaysWhatItMeans) {
  std::set<std::string> names;
  for (const auto& row : variables()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
    EXPECT_STRNE(row.meaning, "") << row.name;
    EXPECT_STRNE(row.readers, "") << row.name;
    EXPECT_EQ(&variable(row.id), &row) << row.name;
  }
}

TEST(EnvironmentTable, DefaultsAreWellFormed) {
  const auto nothing = Environment::of({});
  for (const auto& row : variables()) EXPECT_TRUE(nothing.check(row.id).ok()) << row.name;
}

TEST(Environment, UnsetAndEmptyGiveTheDefault) {
  EXPECT_EQ(Environment::of({}).number(Var::Spin), 50);
  EXPECT_EQ(Environment::of({{"FARAD_SPIN_US", ""}}).number(Var::Spin), 50);
  EXPECT_EQ(Environment::of({{"FARAD_SPIN_US", "0"}}).number(Var::Spin), 0);
}

TEST(Environment, WithoutValueAndDefaultTheTargetStays) {
  int64_t rank = -1;
  EXPECT_TRUE(Environment::of({}).read(Var::Rank, rank).ok());
  EXPECT_EQ(rank, -1);
}

TEST(Environment, BytesTakePowersOf1024) {
  const auto bytes = [](const char* text) {
    return Environment::of({{"FARAD_QUEUE_BYTES", text}}).number(Var::QueueBytes);
  };
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("3K"), 3 * 1024);
  EXPECT_EQ(bytes("64M"), int64_t{64} << 20);
  EXPECT_EQ(bytes("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(bytes("1T"), int64_t{1} << 40);
}

struct Malformed {
  const char* name;
  const char* value;
  const char* expected;
};

class EnvironmentMalformed : public ::testing::TestWithParam<Malformed> {};

TEST_P(EnvironmentMalformed, IsRefusedNamingVariableValueAndExpectation) {
  const auto& [name, value, expected] = GetParam();
  const auto environment = Environment::of({{name, value}});
  for (const auto& row : variables()) {
    const auto status = environment.check(row.id);
    if (std::string_view(row.name) != name) {
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    EXPECT_EQ(status.code(), Code::Invalid);
    EXPECT_THAT(status.message(), HasSubstr(std::string("[environment] ") + name + "=\"" + value + '"'));
    EXPECT_THAT(status.message(), HasSubstr(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Values, EnvironmentMalformed,
    ::testing::Values(Malformed{"RANK", "abc", "a whole number from 0 to 65534"},
                      Malformed{"RANK", "-1", "a whole number from 0 to 65534"},
                      Malformed{"RANK", "1 ", "a whole number"}, Malformed{"RANK", "0x1", "a whole number"},
                      Malformed{"RANK", "65535", "from 0 to 65534"},
                      Malformed{"WORLD_SIZE", "0", "a whole number from 1 to 65535"},
                      Malformed{"MASTER_PORT", "65536", "from 1 to 65535"},
                      Malformed{"FARAD_LOST_AFTER_MS", "3s", "a whole number of milliseconds"},
                      Malformed{"FARAD_QUEUE_BYTES", "64X", "such as 4096, 64M or 2G"},
                      Malformed{"FARAD_QUEUE_BYTES", "9999999999G", "a number of bytes of at least 0"},
                      Malformed{"FARAD_QUEUE_BYTES", "-9223372036854775807T", "a number of bytes of at least 0"},
                      Malformed{"FARAD_QUEUE_BYTES", "99999999999999999999", "a number of bytes"},
                      Malformed{"FARAD_LOG", "loud", "off, error, warning, info or debug"}));

TEST(Environment, NumberThrowsWhereSomebodyWaits) {
  EXPECT_THROW(Environment::of({{"FARAD_SPIN_US", "many"}}).number(Var::Spin), Error);
}

TEST(Environment, OfTheProcessSeesWhatIsSetLater) {
  const auto environment = Environment::process();
  ::setenv("FARAD_NAME", "ada", 1);
  EXPECT_EQ(environment.text(Var::Name), "ada");
  ::unsetenv("FARAD_NAME");
  EXPECT_EQ(environment.text(Var::Name), std::nullopt);
}

}  // namespace
}  // namespace farad::base
