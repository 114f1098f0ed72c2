#include <farad/collectives.h>

#include <ATen/ops/div.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "collectives/calls.h"
#include "worker_core.h"

namespace farad {
namespace {

using at::Tensor;
using collectives::Ticket;
using Tensors = std::vector<Tensor>;
namespace calls = collectives::calls;

std::vector<uint16_t> checked_ranks(const std::vector<int>& ranks, const detail::WorkerCore& core) {
  const auto world = static_cast<int>(core.members().size());
  std::vector<uint16_t> all;
  if (ranks.empty()) {
    for (int rank = 0; rank < world; ++rank) all.push_back(static_cast<uint16_t>(rank));
    return all;
  }
  for (const int rank : ranks) {
    FARAD_CHECK(rank >= 0 && rank < world, "[collectives] Group: there is no rank ", rank, " among ", world,
                " workers");
    all.push_back(static_cast<uint16_t>(rank));
  }
  FARAD_CHECK(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
              "[collectives] Group: a rank is named twice");
  return all;
}

}  // namespace

std::unique_ptr<collectives::Service> detail::WorkerCore::make_groups() {
  return std::make_unique<collectives::Service>(collectives::Services{
      agent_->fabric(), agent_->naming(), [this](const base::Status& why) { log_->warning(why.message()); },
      [weak = weak_from_this()] { return std::weak_ptr<void>(weak); },
      [this] {
        const auto context = gradients_->current();
        return context ? context->id().value : 0;
      },
      [this](const autograd::compat::Ptr<autograd::DeferredNode>& node) {
        const auto context = gradients_->current();
        if (context && !context->add(node, autograd::current_rerun())) node->end();
      },
      [this](base::Rank rank, const collectives::Session& asks) { return groups_->heard_of(rank, asks); }});
}

Group::Group(Worker& worker, std::vector<int> ranks, CallOptions options)
    : core_(detail::WorkerCore::of(worker).shared_from_this()) {
  auto members = checked_ranks(ranks, *core_);
  const auto self = std::find(members.begin(), members.end(), static_cast<uint16_t>(core_->self().rank));
  FARAD_CHECK(self != members.end(), "[collectives] Group: this worker, rank ", core_->self().rank,
              ", is not among its ranks");
  const auto place = static_cast<int>(self - members.begin());
  session_ = core_->groups().make(std::move(members), place, options.timeout.value_or(core_->agent().timeout()));
}

int Group::rank() const { return session_->rank(); }
int Group::size() const { return session_->size(); }

template <class R>
R Group::run(const collectives::Call<R>& call) {
  return call.operation(Ticket(session_, call.channel));
}

/// What it does is done by a thread of the worker, in this thread's context and grad mode; its place among the others
/// is taken now.
template <class R>
Future<R> Group::start(collectives::Call<R> call) {
  Promise<R> promise(core_);
  auto ticket = std::make_shared<Ticket>(session_, call.channel);
  core_->run(core_->bind([promise, ticket = std::move(ticket), operation = std::move(call.operation)] {
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

Tensor Group::all_reduce(Tensor input, Op op) { return run(calls::all_reduce(*session_, std::move(input), op)); }
Future<Tensor> Group::all_reduce_async(Tensor input, Op op) {
  return start(calls::all_reduce(*session_, std::move(input), op));
}
Tensors Group::all_gather(Tensor input) { return run(calls::all_gather(*session_, std::move(input))); }
Future<Tensors> Group::all_gather_async(Tensor input) { return start(calls::all_gather(*session_, std::move(input))); }
Tensor Group::all_gather_cat(Tensor input, int64_t dim) {
  return run(calls::all_gather_cat(*session_, std::move(input), dim));
}
Future<Tensor> Group::all_gather_cat_async(Tensor input, int64_t dim) {
  return start(calls::all_gather_cat(*session_, std::move(input), dim));
}
Tensor Group::reduce_scatter(Tensors inputs, Op op) {
  return run(calls::reduce_scatter(*session_, std::move(inputs), op));
}
Future<Tensor> Group::reduce_scatter_async(Tensors inputs, Op op) {
  return start(calls::reduce_scatter(*session_, std::move(inputs), op));
}
Tensors Group::all_to_all(Tensors inputs) { return run(calls::all_to_all(*session_, std::move(inputs))); }
Future<Tensors> Group::all_to_all_async(Tensors inputs) {
  return start(calls::all_to_all(*session_, std::move(inputs)));
}
Tensor Group::broadcast(Tensor input, int root) { return run(calls::broadcast(*session_, std::move(input), root)); }
Future<Tensor> Group::broadcast_async(Tensor input, int root) {
  return start(calls::broadcast(*session_, std::move(input), root));
}
Tensor Group::reduce(Tensor input, int root, Op op) {
  return run(calls::reduce(*session_, std::move(input), root, op));
}
Future<Tensor> Group::reduce_async(Tensor input, int root, Op op) {
  return start(calls::reduce(*session_, std::move(input), root, op));
}
Tensors Group::gather(Tensor input, int root) { return run(calls::gather(*session_, std::move(input), root)); }
Future<Tensors> Group::gather_async(Tensor input, int root) {
  return start(calls::gather(*session_, std::move(input), root));
}
Tensor Group::scatter(Tensors inputs, int root) { return run(calls::scatter(*session_, std::move(inputs), root)); }
Future<Tensor> Group::scatter_async(Tensors inputs, int root) {
  return start(calls::scatter(*session_, std::move(inputs), root));
}
Tensor Group::send(Tensor input, int to) { return run(calls::send(*session_, std::move(input), to)); }
Tensor Group::recv(int from, Tensor beside) { return run(calls::recv(*session_, from, std::move(beside))); }
Future<Tensor> Group::recv_async(int from, Tensor beside) {
  return start(calls::recv(*session_, from, std::move(beside)));
}
Tensor Group::shift(Tensor input, int by) { return run(calls::shift(*session_, std::move(input), by)); }
Future<Tensor> Group::shift_async(Tensor input, int by) { return start(calls::shift(*session_, std::move(input), by)); }
void Group::barrier() { return run(calls::barrier(*session_)); }
Future<void> Group::barrier_async() { return start(calls::barrier(*session_)); }

Tensor mean_over(const Group& group, const Tensor& loss) { return at::div(loss, static_cast<double>(group.size())); }

}  // namespace farad
