#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <iterator>

#include "unit/wire/stream.h"
#include "wire/dtype.h"

namespace farad::wire {
namespace {

using test::bytes_of;
using test::outgoing;
using test::round_trip;
using test::with_tensors;
using testing::AllOf;
using testing::HasSubstr;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

std::string refusal_to_send(const at::Tensor& tensor) {
  auto message = with_tensors({at::zeros({2}), tensor});
  Outgoing out;
  const auto status = Outgoing::make(message, {}, out);
  EXPECT_EQ(status.code(), base::Code::Invalid);
  EXPECT_EQ(message.tensors.size(), 2u) << "a refused message was taken";
  EXPECT_TRUE(out.done());
  return status.message();
}

TEST(WireTensor, EveryDtypeArrivesBitForBit) {
  for (uint8_t number = 1; dtype_name(number); ++number) {
    const auto dtype = dtype_from_wire(number);
    if (dtype == c10::ScalarType::Undefined) continue;  // of a later libtorch
    const auto sent = at::empty({3, 5}, dtype);
    std::memset(sent.data_ptr(), 1, sent.nbytes());
    EXPECT_TRUE(same_bits(sent, round_trip(sent))) << dtype_name(number);
  }
}

TEST(WireTensor, DtypeNumbersAreNotThoseOfLibtorch) {
  // Written out because they must never change: workers with other versions of libtorch rely on them.
  struct Row {
    const char* name;
    const char* of_libtorch;
  };
  const Row rows[] = {{},
                      {"uint8", "Byte"},
                      {"int8", "Char"},
                      {"int16", "Short"},
                      {"int32", "Int"},
                      {"int64", "Long"},
                      {"float16", "Half"},
                      {"float32", "Float"},
                      {"float64", "Double"},
                      {"complex32", "ComplexHalf"},
                      {"complex64", "ComplexFloat"},
                      {"complex128", "ComplexDouble"},
                      {"bool", "Bool"},
                      {"bfloat16", "BFloat16"},
                      {"float8_e5m2", "Float8_e5m2"},
                      {"float8_e4m3fn", "Float8_e4m3fn"},
                      {"float8_e5m2fnuz", "Float8_e5m2fnuz"},
                      {"float8_e4m3fnuz", "Float8_e4m3fnuz"},
                      {"float8_e8m0fnu", "Float8_e8m0fnu"},
                      {"uint16", "UInt16"},
                      {"uint32", "UInt32"},
                      {"uint64", "UInt64"}};
  for (uint8_t number = 1; number < std::size(rows); ++number) {
    EXPECT_STREQ(dtype_name(number), rows[number].name);
    const auto type = dtype_from_wire(number);
    if (number > 13 && type == c10::ScalarType::Undefined) continue;  // of a later libtorch
    EXPECT_STREQ(c10::toString(type), rows[number].of_libtorch);
    EXPECT_EQ(dtype_to_wire(type), number) << rows[number].name;
  }
  EXPECT_EQ(dtype_to_wire(c10::ScalarType::QInt8), 0);
  EXPECT_EQ(dtype_to_wire(c10::ScalarType::Undefined), 0);
  EXPECT_EQ(dtype_name(0), nullptr);
  EXPECT_EQ(dtype_name(std::size(rows)), nullptr);
}

TEST(WireTensor, ShapesOfEveryKindArrive) {
  for (const auto& sent : {at::rand({}), at::rand({0}), at::rand({3, 0, 2}), at::rand({1}), at::rand({2, 3, 4}),
                           at::rand({1, 1, 1, 1, 1, 1, 1, 2})}) {
    const auto received = round_trip(sent);
    EXPECT_TRUE(same_bits(sent, received)) << sent.sizes();
    EXPECT_EQ(received.strides(), sent.strides());
  }
}

TEST(WireTensor, ABlockKeepsItsStrides) {
  for (const auto& sent : {at::rand({3, 4}).t(), at::rand({2, 3, 4}).permute({2, 0, 1}),
                           at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}) {
    ASSERT_FALSE(sent.is_contiguous());
    const auto received = round_trip(sent);
    EXPECT_EQ(received.strides(), sent.strides());
    EXPECT_TRUE(at::equal(received, sent));
  }
}

TEST(WireTensor, TheStrideOfOneElementDoesNotMatter) {
  const auto sent = at::rand({4, 1, 6}).permute({2, 1, 0}).as_strided({6, 1, 4}, {1, 1'000'000, 6});
  const auto received = round_trip(sent);
  EXPECT_TRUE(at::equal(received, sent));
  EXPECT_LE(received.stride(1), 24);
}

TEST(WireTensor, AViewDoesNotDragItsStorageAlong) {
  const auto base = at::rand({1000, 1000});
  const auto column = base.select(1, 7);
  const auto out = outgoing(with_tensors({column}));
  EXPECT_LT(out.size(), 5000u);
  const auto received = round_trip(column);
  EXPECT_TRUE(at::equal(received, column));
  EXPECT_EQ(received.storage().nbytes(), 4000u);

  const auto rows = base.slice(0, 10, 20);  // a block, written from where it lies
  EXPECT_EQ(round_trip(rows).storage().nbytes(), 40'000u);
}

TEST(WireTensor, ExpandedAndOverlappingViewsArriveAsTheirValues) {
  const auto expanded = at::rand({3, 1}).expand({3, 4});
  EXPECT_TRUE(at::equal(round_trip(expanded), expanded));
  const auto large = at::rand({40, 1}).expand({40, 40});  // Not copied element by element, as small ones are.
  EXPECT_TRUE(at::equal(round_trip(large), large));
  const auto sliced = at::arange(60).reshape({3, 4, 5}).slice(2, 1, 5, 2).transpose(0, 1);
  EXPECT_TRUE(at::equal(round_trip(sliced), sliced));
  const auto number = at::rand({2}).select(0, 1).expand({3, 1, 2});
  EXPECT_TRUE(at::equal(round_trip(number), number));
  const auto windows = at::rand({10}).unfold(0, 4, 1);
  EXPECT_TRUE(at::equal(round_trip(windows), windows));
}

TEST(WireTensor, ConjugatedAndNegatedViewsAreResolved) {
  const auto z = at::complex(at::rand({3, 2}), at::rand({3, 2}));
  const auto conj = round_trip(z.conj());
  EXPECT_FALSE(conj.is_conj());
  EXPECT_TRUE(at::equal(conj, z.conj()));
  const auto negated = at::_neg_view(at::rand({4}));
  EXPECT_FALSE(round_trip(negated).is_neg());
  EXPECT_TRUE(at::equal(round_trip(negated), negated));
}

TEST(WireTensor, RequiresGradTravelsAndTheReceivedTensorIsALeaf) {
  const auto leaf = at::rand({2}).set_requires_grad(true);
  const auto hidden = leaf.mul(2);
  for (const auto& sent : {leaf, hidden, hidden.as_strided({1}, {2})}) {
    const auto received = round_trip(sent);
    EXPECT_TRUE(received.requires_grad());
    EXPECT_TRUE(received.is_leaf());
    EXPECT_TRUE(at::equal(received, sent));
  }
  EXPECT_FALSE(round_trip(leaf.detach()).requires_grad());
}

TEST(WireTensor, AReceivedTensorCanBeUsedLikeAnyOther) {
  auto received = round_trip(at::zeros({4}));
  received.add_(1);
  EXPECT_EQ(received._version(), 1);
  received.resize_({1000});
  EXPECT_EQ(received.slice(0, 0, 4).sum().item<float>(), 4);
}

TEST(WireTensor, TakenInUnderInferenceModeIsStillAnOrdinaryTensor) {
  const auto bytes = bytes_of(with_tensors({at::rand({2}).set_requires_grad(true)}));
  c10::InferenceMode inference;
  const auto received = test::message_of(bytes).tensors.at(0);
  EXPECT_FALSE(received.is_inference());
  EXPECT_TRUE(received.requires_grad());
}

TEST(WireTensor, InferenceTensorsAndUndefinedOnesTravel) {
  at::Tensor inferred;
  {
    c10::InferenceMode inference;
    inferred = at::rand({3});
  }
  EXPECT_TRUE(same_bits(round_trip(inferred), inferred));
  EXPECT_FALSE(round_trip(at::Tensor()).defined());
}

TEST(WireTensor, SparseCooArrivesAsItWas) {
  const auto indices = at::tensor({0, 2, 2, 1, 0, 0}, at::kLong).view({2, 3});
  const auto twice = at::sparse_coo_tensor(indices, at::rand({3, 4}), {3, 2, 4});
  for (const auto& sent : {twice, twice.coalesce(), at::sparse_coo_tensor({3, 2}, at::kDouble)}) {
    const auto received = round_trip(sent);
    EXPECT_EQ(received.layout(), at::kSparse);
    EXPECT_EQ(received.is_coalesced(), sent.is_coalesced());
    EXPECT_EQ(received._nnz(), sent._nnz());
    EXPECT_TRUE(at::equal(received.to_dense(), sent.to_dense()));
  }
  auto leaf = twice.coalesce().set_requires_grad(true);
  EXPECT_TRUE(round_trip(leaf).requires_grad());
}

TEST(WireTensor, BoolsAreNothingButZeroAndOne) {
  auto bytes = bytes_of(with_tensors({at::zeros({3}, at::kBool)}));
  bytes[bytes.size() - 5] = 7;  // the last element, before the trailer
  const auto received = test::message_of(bytes).tensors.at(0);
  EXPECT_EQ(static_cast<const char*>(received.data_ptr())[2], 1);
}

TEST(WireTensor, WhatCannotTravelIsRefusedByNameWithWhatToDo) {
  const auto refused = [](const at::Tensor& tensor) { return refusal_to_send(tensor); };
  EXPECT_THAT(
      refused(at::quantize_per_tensor(at::rand({2}), 0.1, 0, at::kQInt8)),
      AllOf(HasSubstr("[wire] tensor 1 of message kind 3"), HasSubstr("quantised (QInt8)"), HasSubstr("dequantize()")));
  EXPECT_THAT(refused(at::rand({2, 2}).to_sparse_csr()), AllOf(HasSubstr("layout"), HasSubstr("to_sparse()")));
  EXPECT_THAT(refused(at::empty({2}, at::device(at::kMeta))), HasSubstr("meta"));
  EXPECT_THAT(refused(at::rand({2, 2}).to_mkldnn()), AllOf(HasSubstr("mkldnn"), HasSubstr("to_dense()")));
}

}  // namespace
}  // namespace farad::wire
