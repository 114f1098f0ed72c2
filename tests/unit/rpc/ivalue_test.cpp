#include <ATen/core/Dict.h>
#include <ATen/core/Generator.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/ones.h>
#include <farad/detail/by_name.h>
#include <farad/fields.h>
#include <gmock/gmock.h>

namespace farad::detail {
namespace {

using c10::IValue;
using testing::AllOf;
using testing::HasSubstr;

Packet pack(const IValue& value) {
  Packet packet;
  Writer out(packet.body, packet.tensors);
  write(out, value);
  return packet;
}

IValue sent(const IValue& value) {
  const auto packet = pack(value);
  Reader in(packet.body, packet.tensors);
  IValue got;
  if (!read(in, got) || !in.finish()) throw Error(in.error());
  return got;
}

/// What reading `packet` says is wrong with it.
std::string complaint(const Packet& packet) {
  Reader in(packet.body, packet.tensors);
  IValue got;
  return read(in, got) ? "" : in.error();
}

TEST(IValueCodec, SimpleValuesArriveAsTheyWere) {
  EXPECT_TRUE(sent({}).isNone());
  EXPECT_EQ(sent(true).toBool(), true);
  EXPECT_EQ(sent(INT64_MIN).toInt(), INT64_MIN);
  EXPECT_EQ(sent(2.0).toDouble(), 2.0);  // And not an int.
  EXPECT_EQ(sent(c10::complex<double>(1, -2)).toComplexDouble(), c10::complex<double>(1, -2));
  EXPECT_EQ(sent("text").toStringRef(), "text");
  EXPECT_EQ(sent(c10::Device("cuda:3")).toDevice(), c10::Device("cuda:3"));
  EXPECT_EQ(sent(c10::Scalar(7)).toScalar().toLong(), 7);
  EXPECT_EQ(sent(c10::kHalf).toScalarType(), c10::kHalf);
  EXPECT_EQ(sent(at::ones({2, 3})).toTensor().numel(), 6);
  EXPECT_FALSE(sent(at::Tensor()).toTensor().defined());
}

TEST(IValueCodec, ListsKeepTheTypeOfTheirElements) {
  EXPECT_EQ(sent(std::vector<int64_t>{1, -2}).toIntVector(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(sent(std::vector<double>{0.5}).toDoubleVector(), std::vector<double>{0.5});
  EXPECT_EQ(sent(std::vector<bool>{true, false}).toBoolList().size(), 2u);
  EXPECT_EQ(sent(std::vector<at::Tensor>{at::ones({1})}).toTensorVector().size(), 1u);
  EXPECT_EQ(sent(std::vector<std::string>{"a", "b"}).to<std::vector<std::string>>(),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(sent(std::vector<int64_t>{}).isIntList());
  EXPECT_TRUE(sent(std::vector<at::Tensor>{}).isTensorList());
}

TEST(IValueCodec, MixedListsAndNestedTuplesArrive) {
  const auto list = sent(make_list(any_type(), {1, "two", {}})).toListRef().vec();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1].toStringRef(), "two");
  EXPECT_TRUE(list[2].isNone());

  const auto tuple = sent(make_tuple({1, make_tuple({at::ones({4}), 2.5})}));
  EXPECT_EQ(kind_of(tuple), "(int, (Tensor, float))");
}

TEST(IValueCodec, DictsWithSimpleKeysArrive) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("w", at::ones({5}));
  const auto got = sent(dict).toGenericDict();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got.at("w").toTensor().numel(), 5);

  c10::Dict<at::Tensor, int64_t> odd;
  odd.insert(at::ones({1}), 1);
  EXPECT_THAT([&] { pack(odd); }, testing::ThrowsMessage<Error>(HasSubstr("this one has a Tensor")));
}

TEST(IValueCodec, WhatDoesNotTravelIsRefusedByName) {
  EXPECT_THAT([] { pack(at::Generator()); }, testing::ThrowsMessage<Error>(HasSubstr("a Generator does not travel")));
  EXPECT_THAT([] { pack(make_tuple({1, at::Generator()})); },
              testing::ThrowsMessage<Error>(HasSubstr("a Generator does not travel")));
}

TEST(IValueCodec, NestingIsBounded) {
  IValue deep = 1;
  for (int i = 0; i < 1000; ++i) deep = make_tuple({deep});
  EXPECT_THROW(pack(deep), Error);

  Packet hostile;  // An array that begins with the tag of a tuple, over and over.
  for (int i = 0; i < 100'000; ++i) hostile.body.insert(hostile.body.end(), {'\x92', '\x0d'});
  EXPECT_THAT(complaint(hostile), HasSubstr("depth"));
}

TEST(IValueCodec, ClaimsOfManyElementsTakeNoMemory) {
  Packet hostile;  // Sixteen million floats, says the array; two bytes follow.
  hostile.body = {'\xdd', '\x00', '\xff', '\xff', '\xff', '\x0c', '\x00'};
  EXPECT_NE(complaint(hostile), "");
}

TEST(IValueCodec, WhatIsNoValueIsRefused) {
  const auto of = [](std::initializer_list<int> bytes) {
    Packet packet;
    for (int byte : bytes) packet.body.push_back(static_cast<char>(byte));
    return packet;
  };
  EXPECT_NE(complaint(of({})), "");
  EXPECT_NE(complaint(of({0x01})), "");                                // No array.
  EXPECT_NE(complaint(of({0x90})), "");                                // An empty one.
  EXPECT_NE(complaint(of({0x91, 0x0f})), "");                          // A tag that does not exist.
  EXPECT_NE(complaint(of({0x92, 0x00, 0x01})), "");                    // None, and something more.
  EXPECT_NE(complaint(of({0x92, 0x05, 0x01})), "");                    // A complex number that is an integer.
  EXPECT_NE(complaint(of({0x92, 0x07, 0xa1, 'x'})), "");               // Device "x".
  EXPECT_NE(complaint(of({0x92, 0x0e, 0x91, 0x00})), "");              // A dict with half a pair,
  EXPECT_NE(complaint(of({0x93, 0x0e, 0x91, 0x00, 0x91, 0x00})), "");  // with None for a key,
  EXPECT_THAT(complaint(of({0x95, 0x0e, 0x92, 0x03, 0x01, 0x91, 0x00, 0x92, 0x03, 0x01, 0x91, 0x00})),
              HasSubstr("twice"));  // with the same key twice.
}

struct Point {
  int32_t x = 0;
  float y = 0;
  FARAD_FIELDS(x, y)
};

template <class T>
T through(const T& value) {
  T got{};
  std::string why;
  if (!AsValue<T>::from(sent(AsValue<T>::to(value)), got, why)) throw Error(why);
  return got;
}

template <class T>
std::string refusal(const IValue& value) {
  T got{};
  std::string why;
  return AsValue<T>::from(value, got, why) ? "" : why;
}

TEST(AsValue, TypesGoThereAndBack) {
  EXPECT_EQ(through<uint8_t>(200), 200);
  EXPECT_EQ(through<float>(0.5f), 0.5f);
  EXPECT_EQ(through(std::vector<std::vector<int>>{{1, 2}, {}}), (std::vector<std::vector<int>>{{1, 2}, {}}));
  EXPECT_EQ(through(std::vector<bool>{true}), std::vector<bool>{true});
  EXPECT_EQ(through(std::optional<int>{}), std::nullopt);
  EXPECT_EQ(through(std::tuple(1, std::string("a"), 2.5)), std::tuple(1, std::string("a"), 2.5));
  EXPECT_EQ(through(std::map<std::string, int>{{"a", 1}}), (std::map<std::string, int>{{"a", 1}}));
  EXPECT_EQ(through(Point{3, 0.5f}).x, 3);
  EXPECT_EQ(through(c10::kInt), c10::kInt);
}

TEST(AsValue, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal<uint8_t>(256), HasSubstr("256 does not fit"));
  EXPECT_THAT(refusal<uint64_t>(-1), HasSubstr("-1 does not fit"));
  EXPECT_THAT(refusal<float>(1e300), HasSubstr("1e+300 does not fit"));
  EXPECT_EQ(refusal<float>(-std::numeric_limits<double>::infinity()), "") << "that is one of a float, too";
  EXPECT_EQ(refusal<double>(1), "");
  EXPECT_THAT(refusal<int>(1.0), AllOf(HasSubstr("expected an int"), HasSubstr("got float")));
  EXPECT_THAT(refusal<std::vector<int>>(make_tuple({1, "x"})), AllOf(HasSubstr("element 1"), HasSubstr("got str")));
  EXPECT_THAT(refusal<Point>(make_tuple({1})), HasSubstr("expected 2 values, got 1"));
  EXPECT_THROW(AsValue<uint64_t>::to(UINT64_MAX), Error);
}

}  // namespace
}  // namespace farad::detail
