#include "audit/numbers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <farad/audit.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace farad::audit {
namespace {

at::Tensor wide(const at::Tensor& tensor) { return tensor.detach().reshape({-1}).to(c10::ScalarType::Double); }

}  // namespace

at::Tensor flatten(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& shapes) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < shapes.size(); ++i) {
    parts.push_back((tensors[i].defined() ? tensors[i] : at::zeros_like(shapes[i])).detach().reshape({-1}));
  }
  return at::cat(parts);
}

void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& into) {
  const c10::NoGradGuard no_grad;
  int64_t at = 0;
  for (const auto& tensor : into) {
    tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

uint64_t hash(const at::Tensor& tensor) {
  const auto whole = tensor.detach().contiguous();
  const auto* bytes = static_cast<const char*>(whole.data_ptr());
  const size_t size = whole.nbytes();
  uint64_t value = 0x9e3779b97f4a7c15 ^ size;
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, size - at));
    value = (value ^ word) * 0xff51afd7ed558ccd;
    value ^= value >> 32;
  }
  return value;
}

uint64_t hash(const std::vector<at::Tensor>& tensors) {
  uint64_t value = tensors.size();
  for (const auto& tensor : tensors) {
    value = (value ^ (tensor.defined() ? hash(tensor) : 1)) * 0xc4ceb9fe1a85ec53;
    value ^= value >> 29;
  }
  return value;
}

double length_of(const at::Tensor& tensor) { return wide(tensor).norm().item<double>(); }

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  const double size = length_of(b);
  const double apart = length_of(wide(a) - wide(b));
  return size > 0 ? apart / size : apart;
}

double worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  if (!all_finite(a) || !all_finite(b)) return std::numeric_limits<double>::infinity();
  return (wide(a) - wide(b)).abs().max().item<double>();
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  const double sizes = length_of(a) * length_of(b);
  return sizes > 0 ? at::dot(wide(a), wide(b)).item<double>() / sizes : 0;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.contiguous();
  const auto y = b.contiguous();
  return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

bool all_finite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

}  // namespace farad::audit
