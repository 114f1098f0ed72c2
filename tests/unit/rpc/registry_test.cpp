#include <farad/detail/function.h>
#include <farad/worker.h>
#include <gtest/gtest.h>

namespace registered {
int64_t doubled(int64_t x) { return 2 * x; }
}  // namespace registered

FARAD_REMOTE(registered::doubled)

namespace farad::detail {
namespace {

int64_t plain(int64_t x) { return x; }

TEST(Registry, FunctionIsFoundByItsPlace) {
  ASSERT_TRUE(Remote<plain>::known);
  const Function& function = Remote<plain>::function;

  EXPECT_NE(function.id.module, 0u);
  EXPECT_EQ(find_function(function.id), &function);
  EXPECT_EQ(find_function(FunctionId{function.id.module, function.id.offset + 1}), nullptr);
  EXPECT_EQ(find_function(FunctionId{function.id.module + 1, function.id.offset}), nullptr);
}

TEST(Registry, FunctionIsFoundByItsQualifiedNameWhereMadeKnown) {
  const Function* function = find_function("registered::doubled");

  ASSERT_NE(function, nullptr);
  EXPECT_EQ(function->name, "registered::doubled");
  EXPECT_EQ(find_function("doubled"), nullptr);
  EXPECT_EQ(find_function("farad::detail::plain"), nullptr) << "was not made known";
}

TEST(Registry, NamesAreThoseOfTheSource) {
  EXPECT_EQ(pretty<registered::doubled>(), "registered::doubled");
  EXPECT_EQ(pretty<&registered::doubled>(), "registered::doubled");
  EXPECT_EQ(type_name<std::vector<int>>(), "std::vector<int>");
}

}  // namespace
}  // namespace farad::detail
