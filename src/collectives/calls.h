#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/session.h"

namespace farad::collectives {

/// One call of an operation, with what it was called with: done at once, or by another thread later. Its place among
/// the others of its channel is that of the ticket.
template <class R>
struct Call {
  std::function<R(const Ticket&)> operation;
  uint64_t channel = 0;
};

/// The calls of farad::Group. Misuse throws here, which is before anything is sent and before the operation counts.
namespace calls {

using Tensors = std::vector<at::Tensor>;

Call<at::Tensor> all_reduce(const Session& session, at::Tensor input, Op op);
Call<Tensors> all_gather(const Session& session, at::Tensor input);
Call<at::Tensor> all_gather_cat(const Session& session, at::Tensor input, int64_t dim);
Call<at::Tensor> reduce_scatter(const Session& session, Tensors inputs, Op op);
Call<Tensors> all_to_all(const Session& session, Tensors inputs);
Call<at::Tensor> broadcast(const Session& session, at::Tensor input, int root);
Call<at::Tensor> reduce(const Session& session, at::Tensor input, int root, Op op);
Call<Tensors> gather(const Session& session, at::Tensor input, int root);
Call<at::Tensor> scatter(const Session& session, Tensors inputs, int root);
Call<at::Tensor> send(const Session& session, at::Tensor input, int to);
Call<at::Tensor> recv(const Session& session, int from, at::Tensor beside);
Call<at::Tensor> shift(const Session& session, at::Tensor input, int by);
Call<void> barrier(const Session& session);

}  // namespace calls
}  // namespace farad::collectives
