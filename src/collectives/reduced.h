#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <cstddef>
#include <vector>

namespace farad::collectives {

/// What a reduction step by step makes, piece by piece. A large one is written past the cache: nothing of it would be
/// there any more when it is read, and to write it otherwise means to read it from memory first.
class Reduced {
 public:
  /// `memory` is where it comes to lie; flat.
  Reduced(at::Tensor memory, size_t stream_from);

  const at::Tensor& whole() const { return whole_; }
  /// Reduces `tensors` into the piece `to` of whole(). Gives what came of it where it is still in the cache; the next
  /// reduction may overwrite that.
  at::Tensor reduce(const at::Tensor& to, const std::vector<at::Tensor>& tensors, Op op);
  /// Somebody else has reduced that piece.
  void put(const at::Tensor& to, const at::Tensor& from) const;

 private:
  const at::Tensor whole_;
  const bool streams_;
  at::Tensor room_;
};

}  // namespace farad::collectives
