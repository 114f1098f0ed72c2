#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <farad/detail/ivalue.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "unit/wire/stream.h"
#include "wire/value.h"

namespace farad::wire {
namespace {

/// The bytes of tests/golden/<name>.hex: hexadecimal digits; everything after a # is a comment.
Bytes golden(const std::string& name) {
  std::ifstream file(FARAD_TESTS_DIR "/golden/" + name + ".hex");
  EXPECT_TRUE(file) << name;
  Bytes bytes;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) bytes.push_back(static_cast<char>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

std::string hex(const Bytes& bytes) {
  std::ostringstream out;
  for (const unsigned char byte : bytes) out << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15] << ' ';
  return out.str();
}

/// What is sent is exactly the golden bytes, and the golden bytes are taken for it.
void expect_golden(const std::string& name, const Message& message) {
  const auto bytes = golden(name);
  EXPECT_EQ(hex(test::bytes_of(message)), hex(bytes)) << name;
  EXPECT_EQ(hex(test::bytes_of(test::message_of(bytes))), hex(bytes)) << name;
}

Message message_with(uint8_t kind, uint64_t tag) {
  Message message;
  message.kind = kind;
  message.tag = tag;
  return message;
}

TEST(Golden, EmptyMessage) { expect_golden("empty", message_with(1, 2)); }

TEST(Golden, Values) {
  auto message = message_with(5, 0x1122334455667788);
  encode(std::tuple(true, -3, 300, UINT64_MAX, 1.5f, 0.25, std::string("farad"), std::optional<int>(),
                    std::optional<int>(7), std::vector<unsigned char>{1, 2}, std::map<int, bool>{{1, false}},
                    c10::Scalar(c10::complex<double>(1, 2))),
         message);
  expect_golden("values", message);
}

TEST(Golden, DenseTensors) {
  auto message = message_with(2, 3);
  encode(at::tensor({1.0f, 2.0f}).set_requires_grad(true), message);
  message.tensors.push_back(at::tensor({1, 2, 3, 4, 5, 6}, at::kShort).view({3, 2}).t());
  message.tensors.push_back(at::Tensor());
  message.tensors.push_back(at::ones({}, at::kBool));
  expect_golden("dense", message);
}

TEST(Golden, SparseTensor) {
  auto message = message_with(2, 4);
  message.tensors.push_back(
      at::sparse_coo_tensor(at::tensor({0, 2}, at::kLong).view({1, 2}), at::tensor({1.0, 2.0}, at::kDouble), {3})
          .coalesce());
  expect_golden("sparse", message);
}

TEST(Golden, TensorOfADevice) {
  auto message = message_with(2, 5);
  message.tensors.push_back(at::ones({1}).set_requires_grad(true));
  message.devices = {c10::Device(c10::kCUDA, 1)};
  expect_golden("device", message);
}

TEST(Golden, References) {
  auto message = message_with(5, 6);
  detail::References references;
  detail::Writer out(message.body, message.tensors, references, {});
  out.begin_array(2);
  out.reference(nullptr);
  out.reference(nullptr);
  out.end();
  expect_golden("references", message);
}

TEST(Golden, IValueOfEachKind) {
  c10::Dict<std::string, int64_t> dict;
  dict.insert("k", 7);
  const std::vector<c10::IValue> values{
      c10::IValue(),
      at::ones({}, at::kBool),
      true,
      -3,
      0.25,
      c10::complex<double>(1, 2),
      "farad",
      c10::Device(c10::kCUDA, 1),
      std::vector<std::string>{"a"},
      std::vector<at::Tensor>{at::zeros({}, at::kByte)},
      std::vector<bool>{true, false},
      std::vector<int64_t>{1, -2},
      std::vector<double>{0.5},
      std::tuple<int64_t, c10::IValue>(1, c10::IValue()),
      dict,
  };
  auto message = message_with(5, 7);
  encode(values, message);
  expect_golden("ivalues", message);
  std::vector<c10::IValue> read;
  ASSERT_TRUE(decode(test::message_of(golden("ivalues")), read).ok());
  EXPECT_EQ(read.size(), values.size());
}

/// Where everything lies in one place, of which both sides know.
class OnePlace : public Lender, public Borrower {
 public:
  uint64_t least_bytes() const override { return 1; }
  bool lend(const at::Tensor& tensor, uint64_t, Handle& handle) override {
    lent_ = tensor.clone();
    handle = {7, 9};
    return true;
  }
  base::Status borrow(const Handle& handle, uint64_t, at::DataPtr& out) override {
    EXPECT_EQ(handle.block, 7u);
    EXPECT_EQ(handle.meaning, 9u);
    out = at::DataPtr(lent_.data_ptr(), at::kCPU);
    return {};
  }

 private:
  at::Tensor lent_;
};

TEST(Golden, LentTensor) {
  OnePlace place;
  auto message = message_with(2, 8);
  message.tensors.push_back(at::tensor({1.0f, 2.0f}));
  Outgoing out;
  ASSERT_TRUE(Outgoing::make(message, {}, out, &place).ok());
  EXPECT_EQ(hex(test::bytes_of(std::move(out))), hex(golden("lent")));

  Incoming in({}, BufferPool::make(0));
  in.borrow_from(&place);
  ASSERT_TRUE(test::read_all(in, golden("lent"), SIZE_MAX).ok());
  ASSERT_TRUE(in.complete());
  EXPECT_TRUE(at::equal(in.take().tensors.at(0), at::tensor({1.0f, 2.0f})));
}

TEST(Golden, TakenBack) {
  Incoming in({}, BufferPool::make(0));
  ASSERT_TRUE(test::read_all(in, golden("taken_back"), SIZE_MAX).ok());
  ASSERT_TRUE(in.complete());
  EXPECT_TRUE(in.torn());
}

}  // namespace
}  // namespace farad::wire
