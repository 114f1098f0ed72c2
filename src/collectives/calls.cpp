#include "collectives/calls.h"

#include <utility>

#include "base/check.h"
#include "collectives/operations.h"
#include "collectives/reduction.h"

namespace farad::collectives::calls {
namespace {

using at::Tensor;

void check_input(const Tensor& input, const char* operation) {
  FARAD_CHECK(input.defined(), "[collectives] ", operation, ": the input is undefined");
  FARAD_CHECK(input.layout() == at::kStrided, "[collectives] ", operation, ": the input is ", input.layout(),
              "; only dense tensors can be given");
}

void check_inputs(const Tensors& inputs, const Session& session, const char* operation) {
  FARAD_CHECK(inputs.size() == static_cast<size_t>(session.size()), "[collectives] ", operation, ": ", inputs.size(),
              " inputs in a group of ", session.size(), "; there has to be one for each member");
  for (const auto& input : inputs) {
    check_input(input, operation);
    FARAD_CHECK(input.scalar_type() == inputs[0].scalar_type(), "[collectives] ", operation, ": inputs of ",
                inputs[0].scalar_type(), " and of ", input.scalar_type());
  }
}

/// Operations are done on the host. An input of a device comes from there and what becomes of it goes back, both as
/// operations that gradients go through.
class Home {
 public:
  explicit Home(Tensor& input) { take(input); }
  explicit Home(Tensors& inputs) {
    for (auto& input : inputs) take(input);
  }

  template <class R>
  Call<R> call(std::function<R(const Ticket&)> operation, uint64_t channel = 0) const {
    if (device_.is_cpu()) return {std::move(operation), channel};
    return {[operation = std::move(operation), device = device_](const Ticket& ticket) {
              return returned(operation(ticket), device);
            },
            channel};
  }

 private:
  void take(Tensor& input) {
    if (!input.defined() || !input.device().is_cuda()) return;
    device_ = input.device();
    input = input.cpu();
  }
  static Tensor returned(const Tensor& result, at::Device device) { return result.to(result.options().device(device)); }
  static Tensors returned(Tensors results, at::Device device) {
    for (auto& result : results) result = returned(result, device);
    return results;
  }

  at::Device device_ = at::kCPU;
};

void check_member(int member, const Session& session, const char* operation, const char* what) {
  FARAD_CHECK(member >= 0 && member < session.size(), "[collectives] ", operation, ": ", what, " is ", member,
              ", and members are counted from 0 to ", session.size() - 1);
}

void check_other(int member, const Session& session, const char* operation, const char* what) {
  check_member(member, session, operation, what);
  FARAD_CHECK(member != session.rank(), "[collectives] ", operation, ": ", what, " is ", member,
              ", which is this member itself");
}

}  // namespace

Call<Tensor> all_reduce(const Session&, Tensor input, Op op) {
  check_input(input, "all_reduce");
  check_reducible(input, op, "all_reduce");
  const Home home(input);
  return home.call<Tensor>([=](const Ticket& ticket) { return collectives::all_reduce(ticket, input, op); });
}

Call<Tensors> all_gather(const Session&, Tensor input) {
  check_input(input, "all_gather");
  const Home home(input);
  return home.call<Tensors>([=](const Ticket& ticket) { return collectives::all_gather(ticket, input); });
}

Call<Tensor> all_gather_cat(const Session&, Tensor input, int64_t dim) {
  check_input(input, "all_gather_cat");
  FARAD_CHECK(dim >= -input.dim() && dim < input.dim(), "[collectives] all_gather_cat: dim is ", dim,
              ", and the input has ", input.dim(), " dimensions");
  const int64_t from_the_front = dim < 0 ? dim + input.dim() : dim;
  const Home home(input);
  return home.call<Tensor>(
      [=](const Ticket& ticket) { return collectives::all_gather_cat(ticket, input, from_the_front); });
}

Call<Tensor> reduce_scatter(const Session& session, Tensors inputs, Op op) {
  check_inputs(inputs, session, "reduce_scatter");
  check_reducible(inputs[0], op, "reduce_scatter");
  const Home home(inputs);
  return home.call<Tensor>([inputs = std::move(inputs), op](const Ticket& ticket) {
    return collectives::reduce_scatter(ticket, inputs, op);
  });
}

Call<Tensors> all_to_all(const Session& session, Tensors inputs) {
  check_inputs(inputs, session, "all_to_all");
  const Home home(inputs);
  return home.call<Tensors>(
      [inputs = std::move(inputs)](const Ticket& ticket) { return collectives::all_to_all(ticket, inputs); });
}

Call<Tensor> broadcast(const Session& session, Tensor input, int root) {
  check_member(root, session, "broadcast", "root");
  if (session.rank() == root) check_input(input, "broadcast");
  const Home home(input);
  return home.call<Tensor>([=](const Ticket& ticket) { return collectives::broadcast(ticket, input, root); });
}

Call<Tensor> reduce(const Session& session, Tensor input, int root, Op op) {
  check_member(root, session, "reduce", "root");
  check_input(input, "reduce");
  check_reducible(input, op, "reduce");
  const Home home(input);
  return home.call<Tensor>([=](const Ticket& ticket) { return collectives::reduce(ticket, input, root, op); });
}

Call<Tensors> gather(const Session& session, Tensor input, int root) {
  check_member(root, session, "gather", "root");
  check_input(input, "gather");
  const Home home(input);
  return home.call<Tensors>([=](const Ticket& ticket) { return collectives::gather(ticket, input, root); });
}

Call<Tensor> scatter(const Session& session, Tensors inputs, int root) {
  check_member(root, session, "scatter", "root");
  if (session.rank() == root) check_inputs(inputs, session, "scatter");
  const Home home(inputs);
  return home.call<Tensor>(
      [inputs = std::move(inputs), root](const Ticket& ticket) { return collectives::scatter(ticket, inputs, root); });
}

Call<Tensor> send(const Session& session, Tensor input, int to) {
  check_other(to, session, "send", "to");
  check_input(input, "send");
  const Home home(input);
  return home.call<Tensor>([=](const Ticket& ticket) { return collectives::send(ticket, input, to); },
                           channel_of(session.rank(), to, session.size()));
}

Call<Tensor> recv(const Session& session, int from, Tensor beside) {
  check_other(from, session, "recv", "from");
  return {[=](const Ticket& ticket) { return collectives::recv(ticket, from, beside); },
          channel_of(from, session.rank(), session.size())};
}

Call<Tensor> shift(const Session&, Tensor input, int by) {
  check_input(input, "shift");
  const Home home(input);
  return home.call<Tensor>([=](const Ticket& ticket) { return collectives::shift(ticket, input, by); });
}

Call<void> barrier(const Session&) {
  return {[](const Ticket& ticket) { collectives::barrier(ticket); }};
}

}  // namespace farad::collectives::calls
