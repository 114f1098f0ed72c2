#include "rpc/operator_rules.h"

#include <gmock/gmock.h>

namespace farad::rpc {
namespace {

using testing::AllOf;
using testing::HasSubstr;

OperatorRules rules(std::string_view list) {
  OperatorRules made;
  OperatorRules::parse(list, made).raise();
  return made;
}

bool allows(std::string_view list, std::string_view name) { return rules(list).refusal(name).empty(); }

TEST(OperatorRules, WithoutAListAllOfAtenIsOpenButForWhatIsInternalAndForFilesAndStorages) {
  EXPECT_TRUE(allows("", "aten::add"));
  EXPECT_TRUE(allows("", "aten::add_"));
  EXPECT_THAT(rules("").refusal("my::op"), HasSubstr("not one of aten::"));
  EXPECT_THAT(rules("").refusal("aten::_softmax"), HasSubstr("underscore"));
  EXPECT_THAT(rules("").refusal("aten::__and__"), HasSubstr("underscore"));
  EXPECT_THAT(rules("").refusal("aten::from_file"), HasSubstr("files or storages"));
  EXPECT_THAT(rules("").refusal("aten::set_"), HasSubstr("files or storages"));
}

TEST(OperatorRules, AListExtendsAndNarrows) {
  EXPECT_TRUE(allows("my::op", "my::op"));
  EXPECT_TRUE(allows("my::op", "aten::add"));
  EXPECT_FALSE(allows("my::op", "my::other"));
  EXPECT_THAT(rules("-aten::mul").refusal("aten::mul"), HasSubstr("FARAD_OPERATORS forbids it"));
  EXPECT_TRUE(allows("-aten::mul", "aten::mul_"));
  EXPECT_FALSE(allows("-aten::*", "aten::add"));
}

TEST(OperatorRules, TheLastEntryThatFitsCounts) {
  EXPECT_TRUE(allows("-*, aten::add", "aten::add"));
  EXPECT_FALSE(allows("-*, aten::add", "aten::mul"));
  EXPECT_FALSE(allows("aten::add, -*", "aten::add"));
}

TEST(OperatorRules, OnlyItsOwnNameOpensWhatIsInternalOrTouchesFiles) {
  EXPECT_FALSE(allows("aten::*", "aten::_softmax"));
  EXPECT_FALSE(allows("aten::*", "aten::from_file"));
  EXPECT_FALSE(allows("my::*", "my::_op"));
  EXPECT_TRUE(allows("my::*", "my::op"));
  EXPECT_TRUE(allows("aten::_softmax", "aten::_softmax"));
  EXPECT_TRUE(allows("aten::from_file", "aten::from_file"));
}

TEST(OperatorRules, AnEntryThatNamesNoOperatorIsQuoted) {
  for (const char* bad : {"add", "aten::", "aten", "::add", "aten::a*d", "aten::add*", "*", "--aten::add",
                          "aten::add.Tensor", "aten::add aten::mul", "a::b,,c::d", ","}) {
    OperatorRules made;
    const auto status = OperatorRules::parse(bad, made);
    EXPECT_EQ(status.code(), base::Code::Invalid) << bad;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("FARAD_OPERATORS"), HasSubstr("my::op"))) << bad;
  }
  OperatorRules made;
  EXPECT_THAT(OperatorRules::parse("aten::mul, add", made).message(), HasSubstr("\"add\""));
}

}  // namespace
}  // namespace farad::rpc
