#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace farad::base {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

class LogTest : public ::testing::Test {
 protected:
  Log log(Level level) {
    return Log("worker3", level, [this](std::string_view line) { lines.emplace_back(line); });
  }
  std::vector<std::string> lines;
};

TEST_F(LogTest, LineHasTimeWorkerLevelAndMessage) {
  log(Level::Warning).warning("[tcp] dropped ", 3, " from ", "10.0.0.7");
  EXPECT_THAT(lines, ElementsAre(MatchesRegex("farad [0-9:.]+ worker3 warning: \\[tcp\\] dropped 3 from 10.0.0.7\n")));
}

TEST_F(LogTest, ShowsOnlyWhatTheLevelAllows) {
  const auto quiet = log(Level::Error);
  quiet.warning("no");
  quiet.info("no");
  quiet.error("yes");
  EXPECT_EQ(lines.size(), 1u);
  log(Level::Off).error("no");
  EXPECT_EQ(lines.size(), 1u);
  log(Level::Debug).debug("yes");
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(LogTest, NobodyCanMakeUpALine) {
  log(Level::Info).info("peer says \"a\nfarad worker0 error: b\x1b[2J\"");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find('\n'), lines[0].size() - 1);
  EXPECT_NE(lines[0].find("a\\x0afarad"), std::string::npos);
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos);
}

TEST(LogLevel, ComesFromTheEnvironment) {
  EXPECT_EQ(log_level(Environment::of({})), Level::Warning);
  EXPECT_EQ(log_level(Environment::of({{"FARAD_LOG", "debug"}})), Level::Debug);
  EXPECT_EQ(log_level(Environment::of({{"FARAD_LOG", "off"}})), Level::Off);
  EXPECT_EQ(log_level(Environment::of({{"FARAD_LOG", "loud"}})), Level::Warning);
}

}  // namespace
}  // namespace farad::base
