#include "collectives/operations.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "collectives/doubling.h"
#include "collectives/exchange.h"
#include "collectives/reduction.h"
#include "collectives/ring.h"
#include "collectives/slices.h"
#include "collectives/steps.h"
#include "collectives/summed.h"
#include "wire/dtype.h"

namespace farad::collectives {
namespace {

using at::Tensor;

bool is_large(const Tensor& input, const Session& session) {
  return session.size() > 1 && input.nbytes() >= session.algorithms().slices_from;
}

bool is_for_doubling(const Tensor& input, const Session& session) {
  const auto& numbers = session.algorithms();
  return session.size() >= numbers.doubling_members && input.nbytes() < numbers.doubling_below;
}

Signature signature_of(Operation operation, const std::vector<Tensor>& inputs, int64_t number = 0, Op op = Op::Sum) {
  Signature signature{operation, static_cast<uint8_t>(op), number, 0, {}, false};
  for (const auto& input : inputs) {
    if (!input.defined()) continue;
    signature.dtype = wire::dtype_to_wire(input.scalar_type());
    signature.shapes.push_back(input.sizes().vec());
  }
  return signature;
}

/// One that all members take part in, with nothing in it yet.
Exchange among_all(const Ticket& ticket, Signature signature, uint64_t which = 0) {
  const auto& session = *ticket.session();
  Exchange what{ticket.exchange(which), std::move(signature), std::vector<Tensor>(static_cast<size_t>(session.size()))};
  for (int member = 0; member < session.size(); ++member) {
    if (member == session.rank()) continue;
    what.to.push_back(member);
    what.from.push_back(member);
  }
  return what;
}

Exchange of_all(const Ticket& ticket, Signature signature, std::vector<Tensor> gives) {
  auto what = among_all(ticket, std::move(signature));
  what.gives = std::move(gives);
  return what;
}

Exchange of_same(const Ticket& ticket, Signature signature, const Tensor& input, uint64_t which = 0) {
  auto what = among_all(ticket, std::move(signature), which);
  for (auto& gift : what.gives) gift = input;
  return what;
}

size_t place(int member) { return static_cast<size_t>(member); }

/// What is reduced, as all members see it: how an input lies in memory goes with it, but not always, and decides by
/// which instructions it is computed with, whose last bits may differ.
Tensor laid_out(const Tensor& input) { return input.contiguous(); }

/// Everybody's input to everybody, in one exchange.
Tensor reduce_whole(const Ticket& ticket, const Signature& signature, const Tensor& input, Op op, uint64_t which = 0) {
  auto what = of_same(ticket, signature, laid_out(input), which);
  what.keeps_own = false;
  return reduce(exchange(ticket.session(), std::move(what)).tensors, op);
}

/// `sum` of all members' inputs, or their mean, with the history that it would have if everybody had given its input to
/// everybody: so each member's gradient goes to each other one directly, and whoever leaves takes only that of its own
/// loss along.
Tensor with_history(const Ticket& ticket, const Signature& signature, Reduction sum, const Tensor& input, Op op) {
  if (sum.said.empty()) return std::move(sum.result);
  auto what = of_same(ticket, signature, input, differentiable_meeting);
  what.keeps_own = false;
  for (auto& [member, contribution] : sum.said) contribution.tensor = input.detach();
  const auto summands = as_if_exchanged(ticket.session(), std::move(what), std::move(sum.said)).tensors;
  return summed(std::move(sum.result), summands, op == Op::Mean ? ticket.session()->size() : 1);
}

}  // namespace

Tensor all_reduce(const Ticket& ticket, const Tensor& input, Op op) {
  const auto& session = ticket.session();
  const auto signature = signature_of(Operation::AllReduce, {input}, 0, op);
  const bool large = is_large(input, *session), doubling = is_for_doubling(input, *session);
  if (!large && !doubling) return reduce_whole(ticket, signature, input, op);
  const auto reduce_so = doubling                                                 ? reduce_by_doubling
                         : session->algorithms().large == Algorithms::Large::Ring ? reduce_in_a_ring
                                                                                  : reduce_in_slices;
  auto reduction = reduce_so(ticket, signature, input, op);
  if (reduction.result.defined()) return with_history(ticket, signature, std::move(reduction), input, op);

  // A gradient goes through it that depends on everybody's input, or the sum is small. By slices it would go through
  // each member's part of the graph, and one that does not record, or lets go of its result, would take that slice's
  // away from all the others.
  return reduce_whole(ticket, signature, input, op, differentiable_meeting);
}

std::vector<Tensor> all_gather(const Ticket& ticket, const Tensor& input) {
  return exchange(ticket.session(), of_same(ticket, signature_of(Operation::AllGather, {input}), input)).tensors;
}

Tensor all_gather_cat(const Ticket& ticket, const Tensor& input, int64_t dim) {
  auto what = of_same(ticket, signature_of(Operation::AllGatherCat, {input}, dim), input);
  what.keeps_own = false;
  return at::cat(exchange(ticket.session(), std::move(what)).tensors, dim);
}

Tensor reduce_scatter(const Ticket& ticket, const std::vector<Tensor>& inputs, Op op) {
  std::vector<Tensor> gives;
  for (const auto& input : inputs) gives.push_back(laid_out(input));
  auto what = of_all(ticket, signature_of(Operation::ReduceScatter, inputs, 0, op), std::move(gives));
  what.keeps_own = false;
  return reduce(exchange(ticket.session(), std::move(what)).tensors, op);
}

std::vector<Tensor> all_to_all(const Ticket& ticket, const std::vector<Tensor>& inputs) {
  return exchange(ticket.session(), of_all(ticket, signature_of(Operation::AllToAll, inputs), inputs)).tensors;
}

Tensor broadcast(const Ticket& ticket, const Tensor& input, int root) {
  const auto& session = ticket.session();
  const bool gives = session->rank() == root;
  auto signature = signature_of(Operation::Broadcast, gives ? std::vector{input} : std::vector<Tensor>{}, root);
  auto what = gives ? of_same(ticket, std::move(signature), input) : among_all(ticket, std::move(signature));
  if (!gives) what.beside = {input};
  return exchange(session, std::move(what)).tensors[place(root)];
}

Tensor reduce(const Ticket& ticket, const Tensor& input, int root, Op op) {
  const auto& session = ticket.session();
  auto what = among_all(ticket, signature_of(Operation::Reduce, {input}, root, op));
  what.gives[place(root)] = laid_out(input);
  what.keeps_own = false;
  what.wants_token = session->rank() != root;
  auto received = exchange(session, std::move(what));
  return session->rank() == root ? reduce(received.tensors, op) : received.token;
}

std::vector<Tensor> gather(const Ticket& ticket, const Tensor& input, int root) {
  const auto& session = ticket.session();
  auto what = among_all(ticket, signature_of(Operation::Gather, {input}, root));
  what.gives[place(root)] = input;
  what.wants_token = session->rank() != root;
  auto received = exchange(session, std::move(what));
  if (session->rank() == root) return received.tensors;
  return std::vector<Tensor>(place(session->size()), received.token);
}

Tensor scatter(const Ticket& ticket, const std::vector<Tensor>& inputs, int root) {
  const auto& session = ticket.session();
  const bool gives = session->rank() == root;
  auto signature = signature_of(Operation::Scatter, gives ? inputs : std::vector<Tensor>{}, root);
  auto what = gives ? of_all(ticket, std::move(signature), inputs) : among_all(ticket, std::move(signature));
  if (!gives) what.beside = inputs;
  return exchange(session, std::move(what)).tensors[place(root)];
}

Tensor send(const Ticket& ticket, const Tensor& input, int to) {
  const auto& session = ticket.session();
  Exchange what{ticket.exchange(0), signature_of(Operation::Send, {input}, to),
                std::vector<Tensor>(place(session->size()))};
  what.gives[place(to)] = input;
  what.to = {to};
  what.wants_token = true;
  return exchange(session, std::move(what)).token;
}

Tensor recv(const Ticket& ticket, int from, const Tensor& beside) {
  const auto& session = ticket.session();
  Exchange what{ticket.exchange(0), signature_of(Operation::Recv, {}, from),
                std::vector<Tensor>(place(session->size()))};
  what.from = {from};
  what.beside = {beside};
  return exchange(session, std::move(what)).tensors[place(from)];
}

Tensor shift(const Ticket& ticket, const Tensor& input, int by) {
  const auto& session = ticket.session();
  const int size = session->size();
  const auto around = [&](int member) { return ((member % size) + size) % size; };
  auto what = among_all(ticket, signature_of(Operation::Shift, {input}, by));
  what.gives[place(around(session->rank() + by % size))] = input;
  return exchange(session, std::move(what)).tensors[place(around(session->rank() - by % size))];
}

void barrier(const Ticket& ticket) {
  exchange(ticket.session(), among_all(ticket, signature_of(Operation::Barrier, {})));
}

uint64_t channel_of(int from, int to, int size) { return 1 + static_cast<uint64_t>(from) * place(size) + place(to); }

}  // namespace farad::collectives
