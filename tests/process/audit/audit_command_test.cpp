// `farad audit` as people and scripts use it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "process/command/farad_command.h"

namespace farad::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

struct Answer {
  int code;
  std::string out, err;
};

Answer audit(std::vector<std::string> options) {
  options.insert(options.begin(), {"audit", "--rounds", "8"});
  Command command(farad_command(options));
  const int code = command.finish();
  return {code, command.out(), command.err()};
}

TEST(AuditCommand, TheLastLineAnswersTheQuestion) {
  const auto [code, out, err] = audit({});
  ASSERT_EQ(code, 0) << out << err;
  EXPECT_THAT(lines_of(out).back(), StartsWith("STALE-CORRECT: this training propagates its gradients correctly"));
}

TEST(AuditCommand, AProgramAuditsItself) {
  const auto [code, out, err] = audit({"--policy", "allreduced", "--", AUDITED_PROGRAM});
  ASSERT_EQ(code, 0) << out << err;
  EXPECT_THAT(lines_of(out).back(), StartsWith("EQUIVALENT"));
}

TEST(AuditCommand, ADefectIsAFailureAndTheReportSaysWhich) {
  const auto [code, out, err] = audit({"--inject", "accumulate", "--json", "-"});
  EXPECT_EQ(code, 1) << out << err;
  const auto report = json::parse(out);
  EXPECT_EQ(report["verdict"], "BROKEN");
  EXPECT_EQ(report["injected"]["caught"], true);
  EXPECT_EQ(report["options"]["rounds"], 8);
}

TEST(AuditCommand, ListsTheDefects) {
  const auto [code, out, err] = audit({"--inject", "list"});
  EXPECT_EQ(code, 0);
  EXPECT_THAT(out, HasSubstr("freeze-first"));
  EXPECT_THAT(out, HasSubstr("no-lock"));
}

TEST(AuditCommand, WhatCannotBeAuditedIsNeitherRightNorWrong) {
  EXPECT_EQ(audit({"--policy", "hopeful"}).code, 2);
  const auto [code, out, err] = audit({"--", "true"});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(err, HasSubstr("farad::audit::requested()"));
  EXPECT_EQ(audit({"--", "./no-such-program"}).code, 2);
}

}  // namespace
}  // namespace farad::test
