#include "collectives/reduction.h"

#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include "base/check.h"

namespace farad::collectives {

void check_reducible(const at::Tensor& tensor, Op op, const char* operation) {
  const auto type = tensor.scalar_type();
  const bool real = at::isFloatingType(type);
  const bool complex = at::isComplexType(type);
  FARAD_CHECK(op != Op::Mean || real || complex, "[collectives] ", operation, "(Mean) of ", type,
              ": a mean is no integer; convert the tensor first");
  FARAD_CHECK((op != Op::Max && op != Op::Min) || !complex, "[collectives] ", operation, " of ", type,
              ": complex numbers have neither maximum nor minimum");
}

at::Tensor reduce(const std::vector<at::Tensor>& tensors, Op op) {
  if (op == Op::Max) return at::amax(at::stack(tensors), 0);
  if (op == Op::Min) return at::amin(at::stack(tensors), 0);
  auto result = tensors.front();
  for (size_t i = 1; i < tensors.size(); ++i) {
    result = op == Op::Product ? at::mul(result, tensors[i]) : at::add(result, tensors[i]);
  }
  if (op == Op::Mean) return at::div(result, static_cast<double>(tensors.size()));
  return tensors.size() == 1 ? result.clone() : result;
}

void reduce_into(at::Tensor& out, const std::vector<at::Tensor>& tensors, Op op) {
  if (op == Op::Max) {
    at::amax_out(out, at::stack(tensors), 0);
    return;
  }
  if (op == Op::Min) {
    at::amin_out(out, at::stack(tensors), 0);
    return;
  }
  for (size_t i = 1; i < tensors.size(); ++i) {
    const auto& so_far = i == 1 ? tensors[0] : out;
    op == Op::Product ? at::mul_out(out, so_far, tensors[i]) : at::add_out(out, so_far, tensors[i]);
  }
  if (op == Op::Mean) out.div_(static_cast<double>(tensors.size()));
}

}  // namespace farad::collectives
