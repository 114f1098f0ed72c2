#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <vector>

#include "collectives/session.h"

/// The operations of farad::Group, each as exchanges between the members and functions of libtorch: their adjoints are
/// those of their parts, in reverse. Inputs have been checked by who made the ticket.
namespace farad::collectives {

at::Tensor all_reduce(const Ticket& ticket, const at::Tensor& input, Op op);
std::vector<at::Tensor> all_gather(const Ticket& ticket, const at::Tensor& input);
at::Tensor all_gather_cat(const Ticket& ticket, const at::Tensor& input, int64_t dim);
at::Tensor reduce_scatter(const Ticket& ticket, const std::vector<at::Tensor>& inputs, Op op);
std::vector<at::Tensor> all_to_all(const Ticket& ticket, const std::vector<at::Tensor>& inputs);
at::Tensor broadcast(const Ticket& ticket, const at::Tensor& input, int root);
at::Tensor reduce(const Ticket& ticket, const at::Tensor& input, int root, Op op);
std::vector<at::Tensor> gather(const Ticket& ticket, const at::Tensor& input, int root);
at::Tensor scatter(const Ticket& ticket, const std::vector<at::Tensor>& inputs, int root);
at::Tensor send(const Ticket& ticket, const at::Tensor& input, int to);
at::Tensor recv(const Ticket& ticket, int from, const at::Tensor& beside);
at::Tensor shift(const Ticket& ticket, const at::Tensor& input, int by);
void barrier(const Ticket& ticket);

/// The channel of what goes from one member to another. Those that all take part in go through channel 0.
uint64_t channel_of(int from, int to, int size);

}  // namespace farad::collectives
