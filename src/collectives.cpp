#include <farad/collectives.h>

#include <ATen/ops/div.h>

#include <algorithm>
#include <set>
#include <utility>

#include "collectives/operations.h"
#include "collectives/reduction.h"
#include "worker_core.h"

namespace farad {
namespace {

using at::Tensor;
using collectives::Session;
using collectives::Ticket;

// --- Misuse is told before anything is sent, and before the operation counts ---

void check_input(const Tensor& input, const char* operation) {
  TORCH_CHECK(input.defined(), "[collectives] ", operation, ": the input is undefined");
  TORCH_CHECK(input.layout() == at::kStrided, "[collectives] ", operation, ": the input is ", input.layout(),
              "; only dense tensors can be given");
}

void check_inputs(const std::vector<Tensor>& inputs, const Session& session, const char* operation) {
  TORCH_CHECK(inputs.size() == static_cast<size_t>(session.size()), "[collectives] ", operation, ": ", inputs.size(),
              " inputs in a group of ", session.size(), "; there has to be one for each member");
  for (const auto& input : inputs) {
    check_input(input, operation);
    TORCH_CHECK(input.scalar_type() == inputs[0].scalar_type(), "[collectives] ", operation, ": inputs of ",
                inputs[0].scalar_type(), " and of ", input.scalar_type());
  }
}

void check_member(int member, const Session& session, const char* operation, const char* what) {
  TORCH_CHECK(member >= 0 && member < session.size(), "[collectives] ", operation, ": ", what, " is ", member,
              ", and members are counted from 0 to ", session.size() - 1);
}

void check_other(int member, const Session& session, const char* operation, const char* what) {
  check_member(member, session, operation, what);
  TORCH_CHECK(member != session.rank(), "[collectives] ", operation, ": ", what, " is ", member,
              ", which is this member itself");
}

int64_t checked_dim(const Tensor& input, int64_t dim) {
  check_input(input, "all_gather_cat");
  TORCH_CHECK(dim >= -input.dim() && dim < input.dim(), "[collectives] all_gather_cat: dim is ", dim,
              ", and the input has ", input.dim(), " dimensions");
  return dim < 0 ? dim + input.dim() : dim;
}

std::vector<uint16_t> checked_ranks(const std::vector<int>& ranks, const detail::WorkerCore& core) {
  const auto world = static_cast<int>(core.members().size());
  std::vector<uint16_t> all;
  if (ranks.empty()) {
    for (int rank = 0; rank < world; ++rank) all.push_back(static_cast<uint16_t>(rank));
    return all;
  }
  for (const int rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < world, "[collectives] Group: there is no rank ", rank, " among ", world,
                " workers");
    all.push_back(static_cast<uint16_t>(rank));
  }
  TORCH_CHECK(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
              "[collectives] Group: a rank is named twice");
  return all;
}

}  // namespace

std::unique_ptr<collectives::Service> detail::WorkerCore::make_groups() {
  return std::make_unique<collectives::Service>(collectives::Services{
      agent_->fabric(), [names = agent_->names()](base::Rank rank) { return names.at(rank.value); },
      [this](const base::Status& why) { log_->warning(why.message()); },
      [weak = weak_from_this()] { return std::weak_ptr<void>(weak); },
      [this] {
        const auto context = gradients_->current();
        return context ? context->id().value : 0;
      },
      [this](const autograd::compat::Ptr<autograd::DeferredNode>& node) {
        const auto context = gradients_->current();
        if (context && !context->add(node, autograd::current_rerun())) node->end();
      }});
}

Group::Group(Worker& worker, std::vector<int> ranks, CallOptions options)
    : core_(detail::WorkerCore::of(worker).shared_from_this()) {
  auto members = checked_ranks(ranks, *core_);
  const auto self = std::find(members.begin(), members.end(), static_cast<uint16_t>(core_->self().rank));
  TORCH_CHECK(self != members.end(), "[collectives] Group: this worker, rank ", core_->self().rank,
              ", is not among its ranks");
  const auto place = static_cast<int>(self - members.begin());
  session_ = core_->groups().make(std::move(members), place, options.timeout.value_or(core_->agent().timeout()));
}

int Group::rank() const { return session_->rank(); }
int Group::size() const { return session_->size(); }

/// What it does is done by a thread of the worker, in this thread's context and grad mode; its place among the others
/// was taken with the ticket.
template <class R>
Future<R> Group::start(std::shared_ptr<Ticket> ticket, std::function<R(const Ticket&)> operation) {
  Promise<R> promise(core_);
  core_->run(core_->bind([promise, ticket = std::move(ticket), operation = std::move(operation)] {
    try {
      if constexpr (std::is_void_v<R>) {
        operation(*ticket);
        promise.set_value();
      } else {
        promise.set_value(operation(*ticket));
      }
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }));
  return promise.future();
}

Tensor Group::all_reduce(Tensor input, Op op) {
  check_input(input, "all_reduce");
  collectives::check_reducible(input, op, "all_reduce");
  return collectives::all_reduce(Ticket(session_), input, op);
}
Future<Tensor> Group::all_reduce_async(Tensor input, Op op) {
  check_input(input, "all_reduce");
  collectives::check_reducible(input, op, "all_reduce");
  return start<Tensor>(std::make_shared<Ticket>(session_),
                       [=](const Ticket& ticket) { return collectives::all_reduce(ticket, input, op); });
}

std::vector<Tensor> Group::all_gather(Tensor input) {
  check_input(input, "all_gather");
  return collectives::all_gather(Ticket(session_), input);
}
Future<std::vector<Tensor>> Group::all_gather_async(Tensor input) {
  check_input(input, "all_gather");
  return start<std::vector<Tensor>>(std::make_shared<Ticket>(session_),
                                    [=](const Ticket& ticket) { return collectives::all_gather(ticket, input); });
}

Tensor Group::all_gather_cat(Tensor input, int64_t dim) {
  dim = checked_dim(input, dim);
  return collectives::all_gather_cat(Ticket(session_), input, dim);
}
Future<Tensor> Group::all_gather_cat_async(Tensor input, int64_t dim) {
  dim = checked_dim(input, dim);
  return start<Tensor>(std::make_shared<Ticket>(session_),
                       [=](const Ticket& ticket) { return collectives::all_gather_cat(ticket, input, dim); });
}

Tensor Group::reduce_scatter(std::vector<Tensor> inputs, Op op) {
  check_inputs(inputs, *session_, "reduce_scatter");
  collectives::check_reducible(inputs[0], op, "reduce_scatter");
  return collectives::reduce_scatter(Ticket(session_), inputs, op);
}
Future<Tensor> Group::reduce_scatter_async(std::vector<Tensor> inputs, Op op) {
  check_inputs(inputs, *session_, "reduce_scatter");
  collectives::check_reducible(inputs[0], op, "reduce_scatter");
  return start<Tensor>(std::make_shared<Ticket>(session_), [inputs = std::move(inputs), op](const Ticket& ticket) {
    return collectives::reduce_scatter(ticket, inputs, op);
  });
}

std::vector<Tensor> Group::all_to_all(std::vector<Tensor> inputs) {
  check_inputs(inputs, *session_, "all_to_all");
  return collectives::all_to_all(Ticket(session_), inputs);
}
Future<std::vector<Tensor>> Group::all_to_all_async(std::vector<Tensor> inputs) {
  check_inputs(inputs, *session_, "all_to_all");
  return start<std::vector<Tensor>>(
      std::make_shared<Ticket>(session_),
      [inputs = std::move(inputs)](const Ticket& ticket) { return collectives::all_to_all(ticket, inputs); });
}

Tensor Group::broadcast(Tensor input, int root) {
  check_member(root, *session_, "broadcast", "root");
  if (rank() == root) check_input(input, "broadcast");
  return collectives::broadcast(Ticket(session_), input, root);
}
Future<Tensor> Group::broadcast_async(Tensor input, int root) {
  check_member(root, *session_, "broadcast", "root");
  if (rank() == root) check_input(input, "broadcast");
  return start<Tensor>(std::make_shared<Ticket>(session_),
                       [=](const Ticket& ticket) { return collectives::broadcast(ticket, input, root); });
}

Tensor Group::reduce(Tensor input, int root, Op op) {
  check_member(root, *session_, "reduce", "root");
  check_input(input, "reduce");
  collectives::check_reducible(input, op, "reduce");
  return collectives::reduce(Ticket(session_), input, root, op);
}
Future<Tensor> Group::reduce_async(Tensor input, int root, Op op) {
  check_member(root, *session_, "reduce", "root");
  check_input(input, "reduce");
  collectives::check_reducible(input, op, "reduce");
  return start<Tensor>(std::make_shared<Ticket>(session_),
                       [=](const Ticket& ticket) { return collectives::reduce(ticket, input, root, op); });
}

std::vector<Tensor> Group::gather(Tensor input, int root) {
  check_member(root, *session_, "gather", "root");
  check_input(input, "gather");
  return collectives::gather(Ticket(session_), input, root);
}
Future<std::vector<Tensor>> Group::gather_async(Tensor input, int root) {
  check_member(root, *session_, "gather", "root");
  check_input(input, "gather");
  return start<std::vector<Tensor>>(std::make_shared<Ticket>(session_),
                                    [=](const Ticket& ticket) { return collectives::gather(ticket, input, root); });
}

Tensor Group::scatter(std::vector<Tensor> inputs, int root) {
  check_member(root, *session_, "scatter", "root");
  if (rank() == root) check_inputs(inputs, *session_, "scatter");
  if (rank() != root) inputs.clear();
  return collectives::scatter(Ticket(session_), inputs, root);
}
Future<Tensor> Group::scatter_async(std::vector<Tensor> inputs, int root) {
  check_member(root, *session_, "scatter", "root");
  if (rank() == root) check_inputs(inputs, *session_, "scatter");
  if (rank() != root) inputs.clear();
  return start<Tensor>(std::make_shared<Ticket>(session_), [inputs = std::move(inputs), root](const Ticket& ticket) {
    return collectives::scatter(ticket, inputs, root);
  });
}

Tensor Group::send(Tensor input, int to) {
  check_other(to, *session_, "send", "to");
  check_input(input, "send");
  return collectives::send(Ticket(session_, collectives::channel_of(rank(), to, size())), input, to);
}
Tensor Group::recv(int from) {
  check_other(from, *session_, "recv", "from");
  return collectives::recv(Ticket(session_, collectives::channel_of(from, rank(), size())), from);
}
Future<Tensor> Group::recv_async(int from) {
  check_other(from, *session_, "recv", "from");
  return start<Tensor>(std::make_shared<Ticket>(session_, collectives::channel_of(from, rank(), size())),
                       [=](const Ticket& ticket) { return collectives::recv(ticket, from); });
}

Tensor Group::shift(Tensor input, int by) {
  check_input(input, "shift");
  return collectives::shift(Ticket(session_), input, by);
}
Future<Tensor> Group::shift_async(Tensor input, int by) {
  check_input(input, "shift");
  return start<Tensor>(std::make_shared<Ticket>(session_),
                       [=](const Ticket& ticket) { return collectives::shift(ticket, input, by); });
}

void Group::barrier() { collectives::barrier(Ticket(session_)); }
Future<void> Group::barrier_async() {
  return start<void>(std::make_shared<Ticket>(session_), [](const Ticket& ticket) { collectives::barrier(ticket); });
}

Tensor mean_over(const Group& group, const Tensor& loss) { return at::div(loss, static_cast<double>(group.size())); }

}  // namespace farad
