#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <span>
#include <vector>

/// Rows of numbers, one after the other, and tensors of them.
namespace farad::acer {

template <class Value>
std::span<const Value> row_of(const std::vector<Value>& rows, int64_t row, int64_t width) {
  return {rows.data() + row * width, static_cast<size_t>(width)};
}

/// Of that type, with as many rows as there are. Lies in `rows` where that has the type.
template <class Value>
at::Tensor as_tensor(const std::vector<Value>& rows, int64_t width, at::ScalarType type) {
  auto* data = const_cast<Value*>(rows.data());  // It is only read.
  const auto from = c10::CppTypeToScalarType<Value>::value;
  return at::from_blob(data, {static_cast<int64_t>(rows.size()) / width, width}, from).to(type);
}

inline void append(const at::Tensor& tensor, std::vector<double>& to) {
  const auto values = tensor.contiguous();
  const auto add = [&](const auto* from) { to.insert(to.end(), from, from + values.numel()); };
  values.scalar_type() == at::kDouble ? add(values.data_ptr<double>()) : add(values.data_ptr<float>());
}

}  // namespace farad::acer
