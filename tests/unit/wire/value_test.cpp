#include "wire/value.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <farad/error.h>
#include <farad/fields.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace farad::wire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

enum class Colour : uint8_t { Red = 1, Blue = 200 };

struct Point {
  int32_t x = 0;
  double y = 0;
  FARAD_FIELDS(x, y)
  bool operator==(const Point&) const = default;
};

struct Path {
  std::string name;
  std::vector<Point> points;
  std::optional<at::Tensor> weights;
  FARAD_FIELDS(name, points, weights)
};

struct Tree {
  int value = 0;
  std::vector<Tree> children;
  FARAD_FIELDS(value, children)
};

template <class T>
T round_trip(const T& value) {
  Message message;
  encode(value, message);
  return decode<T>(message);
}

template <class... T>
void expect_back(const T&... values) {
  const auto expect = [](const auto& value) { EXPECT_EQ(round_trip(value), value); };
  (expect(values), ...);
}

template <class From, class To>
std::string refusal(const From& from, To to = {}, const Limits& limits = {}) {
  Message message;
  message.kind = 9;
  encode(from, message);
  const auto status = decode(message, to, limits);
  EXPECT_TRUE(status.ok() || status.code() == base::Code::Protocol);
  return status.message();
}

template <class T>
std::string refusal_of_bytes(std::vector<unsigned char> bytes, const Limits& limits = {}) {
  Message message;
  message.body.assign(bytes.begin(), bytes.end());
  T value{};
  return decode(message, value, limits).message();
}

TEST(Value, NumbersOfEveryTypeComeBack) {
  expect_back(true, false, 'c', int8_t{-128}, uint8_t{255}, int16_t{-32768}, uint16_t{65535}, INT32_MIN, UINT32_MAX,
              INT64_MIN, INT64_MAX, UINT64_MAX, 0, -1, 127, 128, -32, -33, 1.5f, 2.0f, 0.1, 2.0, 1e300,
              std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::signbit(round_trip(-0.0)));
  EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
  EXPECT_TRUE(std::isnan(round_trip(std::nanf(""))));
  EXPECT_EQ(round_trip(Colour::Blue), Colour::Blue);
}

TEST(Value, LongDoublesComeBackWhole) {
  using Range = std::numeric_limits<long double>;
  const long double third = 1.0L / 3;
  ASSERT_TRUE(Range::digits == 53 || third != static_cast<double>(third));
  expect_back(third, -third * Range::max(), Range::denorm_min(), Range::infinity(), 0.0L);
  EXPECT_TRUE(std::signbit(round_trip(-0.0L)));
  EXPECT_TRUE(std::isnan(round_trip(Range::quiet_NaN())));
}

TEST(Value, ContainersComeBack) {
  expect_back(std::string("text"), std::string(), std::string(70'000, 'x'), std::string("with\0zero", 9));
  expect_back(std::vector<int>{1, 2, 3}, std::vector<int>{}, std::vector<bool>{true, false},
              std::vector<std::string>{"a", ""});
  expect_back(std::vector<char>{'a', 'b'}, std::vector<unsigned char>(300, 7), std::vector<float>(100'000, 1.5f));
  expect_back(std::array<int, 3>{1, 2, 3}, std::array<int, 0>{}, std::pair(1, std::string("x")),
              std::tuple(1, 2.0, true), std::tuple<>());
  expect_back(std::map<std::string, int>{{"a", 1}, {"b", 2}}, std::unordered_map<int, std::string>{{1, "x"}});
  expect_back(std::optional<int>(), std::optional<int>(5));
}

TEST(Value, AnOptionalOfAnOptionalKeepsItsTwoKindsOfNothing) {
  using Twice = std::optional<std::optional<int>>;
  EXPECT_EQ(round_trip(Twice()), Twice());
  EXPECT_EQ(round_trip(Twice(std::optional<int>())), Twice(std::optional<int>()));
}

TEST(Value, StructsTravelByTheirFields) {
  const Path path{"p", {{1, 2.5}, {3, 4.5}}, at::rand({2})};
  const auto back = round_trip(path);
  EXPECT_EQ(back.name, path.name);
  EXPECT_EQ(back.points, path.points);
  EXPECT_TRUE(at::equal(*back.weights, *path.weights));
}

TEST(Value, TensorsLieBesideTheBytes) {
  Message message;
  const std::vector<at::Tensor> tensors{at::rand({1000}), at::Tensor(), at::rand({2})};
  encode(tensors, message);
  EXPECT_LT(message.body.size(), 32u);
  ASSERT_EQ(message.tensors.size(), 3u);
  EXPECT_TRUE(decode<std::vector<at::Tensor>>(message)[2].is_same(tensors[2]));
}

TEST(Value, ScalarsKeepTheirType) {
  EXPECT_TRUE(round_trip(c10::Scalar(true)).isBoolean());
  EXPECT_EQ(round_trip(c10::Scalar(int64_t{-5})).toLong(), -5);
  EXPECT_TRUE(round_trip(c10::Scalar(2.0)).isFloatingPoint());
  const auto z = round_trip(c10::Scalar(c10::complex<double>(1, -2)));
  EXPECT_EQ(z.toComplexDouble(), c10::complex<double>(1, -2));
}

TEST(Value, SeveralValuesFollowEachOtherInOneMessage) {
  Message message;
  encode(1, message);
  encode(std::string("two"), message);
  auto in = reader(message);
  int one = 0;
  std::string two;
  EXPECT_TRUE(detail::read(in, one) && detail::read(in, two) && in.finish());
  EXPECT_EQ(two, "two");
}

TEST(Value, ErrorsSayWhatWasExpectedWhatCameAndWhere) {
  EXPECT_EQ(
      refusal(std::string("hello"), int64_t{}),
      "[wire] message kind 9: expected an integer from -9223372036854775808 to 9223372036854775807, got a string of "
      "5 bytes");
  EXPECT_THAT(refusal(300, uint8_t{}), HasSubstr("from 0 to 255, got the integer 300"));
  EXPECT_THAT(refusal(-1, 0u), HasSubstr("got the integer -1"));
  EXPECT_THAT(refusal(UINT64_MAX, int64_t{}), HasSubstr("got the integer 18446744073709551615"));
  EXPECT_THAT(refusal(256, Colour{}), HasSubstr("from 0 to 255"));
  EXPECT_THAT(refusal(1, true), HasSubstr("expected a bool, got the integer 1"));
  EXPECT_THAT(refusal(1, at::Tensor()), HasSubstr("expected a tensor, got the integer 1"));
  EXPECT_THAT(refusal(at::rand({1}), std::string()), HasSubstr("expected a string, got a tensor"));
}

TEST(Value, ErrorsInsideContainersNameThePlace) {
  const std::tuple sent(std::string("p"), std::vector{std::tuple(1, 2.5), std::tuple(1, 2.5)}, std::optional<int>());
  EXPECT_EQ(refusal(sent, Path()), "");
  const std::tuple wrong(std::string("p"), std::vector{std::tuple(1, std::string("y"))}, std::optional<int>());
  EXPECT_THAT(refusal(wrong, Path()), HasSubstr("field points: element 0: field y: expected a double, got a string"));
  EXPECT_THAT(refusal(std::vector{1, 2, 3}, Point()), HasSubstr("expected a struct of 2, got an array of 3"));
}

TEST(Value, FloatsTakeWhatTheyCanHoldExactly) {
  EXPECT_EQ(refusal(12, 0.0), "");
  EXPECT_EQ(refusal(1.5f, 0.0), "");
  EXPECT_EQ(refusal(1.5, 0.0f), "");
  EXPECT_THAT(refusal(0.1, 0.0f), HasSubstr("which no float equals"));
  EXPECT_THAT(refusal((int64_t{1} << 53) + 1, 0.0), HasSubstr("expected a double"));
}

TEST(Value, BytesThatAreNoValuesAreRefused) {
  EXPECT_THAT(refusal_of_bytes<int>({}), HasSubstr("cut off"));
  EXPECT_THAT(refusal_of_bytes<int>({0xc1}), HasSubstr("not MessagePack"));
  EXPECT_THAT(refusal_of_bytes<int>({0xd2, 0}), HasSubstr("cut off"));
  EXPECT_THAT(refusal_of_bytes<std::string>({0xdb, 0xff, 0xff, 0xff, 0xff, 'x'}), HasSubstr("cut off"));
  EXPECT_THAT(refusal_of_bytes<int>({1, 2}), HasSubstr("1 bytes are left over"));
  EXPECT_THAT(refusal_of_bytes<at::Tensor>({0xd6, 1, 0, 0, 0, 0}), HasSubstr("tensor 0 of 0"));
  EXPECT_THAT(refusal_of_bytes<at::Tensor>({0xd6, 5, 0, 0, 0, 0}), HasSubstr("an extension of type 5"));
  EXPECT_THAT((refusal_of_bytes<std::map<int, int>>({0x82, 1, 1, 1, 1})), HasSubstr("a key comes twice"));
}

TEST(Value, CountsAreCheckedAgainstTheLimitsAndTheBytesThatAreThere) {
  EXPECT_THAT(refusal_of_bytes<std::vector<int>>({0xdd, 0xff, 0xff, 0xff, 0xff}),
              HasSubstr("a container of 4294967295, the limit"));
  EXPECT_THAT(refusal_of_bytes<std::vector<int>>({0xdd, 0, 0x10, 0, 0, 1}),
              HasSubstr("a container of 1048576 in 1 bytes"));
  EXPECT_THAT((refusal_of_bytes<std::map<int, int>>({0x82, 1, 1, 2})), HasSubstr("a container of 2 in 3 bytes"));
  Limits limits;
  limits.elements = 2;
  EXPECT_THAT((refusal_of_bytes<std::vector<int>>({0x93, 1, 2, 3}, limits)), HasSubstr("of 3, the limit is 2"));
  Message message;
  EXPECT_THROW(encode(std::vector{1, 2, 3}, message, limits), farad::Error);
}

TEST(Value, NestingIsBoundedOnBothSides) {
  Tree deep;
  for (int i = 0; i < 40; ++i) deep = Tree{i, {deep}};
  Message message;
  EXPECT_THROW(encode(deep, message), farad::Error);
  Limits generous;
  generous.depth = 1000;
  Message sent;
  encode(deep, sent, generous);
  Tree back;
  EXPECT_TRUE(decode(sent, back, generous).ok());
  EXPECT_EQ(back.value, 39);
  EXPECT_THAT(decode(sent, back).message(), HasSubstr("nested to a depth of 65, the limit is 64"));
}

TEST(Value, WhoeverWaitsGetsAnException) {
  Message message;
  encode(std::string("x"), message);
  EXPECT_THROW(decode<int>(message), farad::Error);
}

}  // namespace
}  // namespace farad::wire
