#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

/// What is compared in an audit: lists of tensors as one flat tensor, hashes of their bytes, distances.
namespace farad::audit {

/// One after the other; an undefined one is as many zeros as the one of `shapes` at its place has elements.
at::Tensor flatten(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& shapes);
/// Copies the parts of a flat tensor into tensors.
void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& into);

/// Of the bytes.
uint64_t hash(const at::Tensor& tensor);
uint64_t hash(const std::vector<at::Tensor>& tensors);

/// |a - b| / |b| in double precision; |a| if b is zero.
double relative_distance(const at::Tensor& a, const at::Tensor& b);
/// The largest difference of two elements; infinite if one is no number.
double largest_difference(const at::Tensor& a, const at::Tensor& b);
double length_of(const at::Tensor& tensor);
/// 0 if one of them is zero.
double cosine(const at::Tensor& a, const at::Tensor& b);
/// To the bit.
bool same(const at::Tensor& a, const at::Tensor& b);
bool all_finite(const at::Tensor& tensor);

}  // namespace farad::audit
