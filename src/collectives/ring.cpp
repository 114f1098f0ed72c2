#include "collectives/ring.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "collectives/reduction.h"
#include "collectives/steps.h"

namespace farad::collectives {
namespace {

using at::Tensor;

class Ring {
 public:
  Ring(Steps& steps, const Tensor& input, Op op)
      : steps_(steps),
        op_(op),
        input_(flattened(input)),
        before_((steps.rank() + steps.members() - 1) % steps.members()),
        after_((steps.rank() + 1) % steps.members()) {
    const auto bytes = std::max<size_t>(1, steps.algorithms().slice_bytes);
    count_ = static_cast<int64_t>(std::max<size_t>(1, (input_.nbytes() + bytes - 1) / bytes));
  }

  Tensor run() {
    auto first = steps_.begin(first_meeting, steps_.others(), steps_.others(), [](int) { return Tensor(); });
    if (!steps_.go_on(steps_.finish(first), op_)) return {};
    result_ = steps_.memory_for(input_);
    // A piece comes back after as many steps as there are members. Who waited for it before would keep the next one
    // from going around meanwhile.
    const int64_t lag = steps_.members();
    for (int64_t piece = 0; piece < count_ + lag; ++piece) {
      if (piece < count_) reduce(piece);
      if (piece >= lag) take_around(piece - lag);
    }
    return result_;
  }

  /// The next member waits for the first piece that this one has not sent, of either kind; and tells the one after it.
  void fail(const base::Status& why) {
    if (reduced_ < count_ && !is_last()) steps_.fail(number_of(reduced_, steps_.rank()), {after_}, why);
    if (returned_ < count_ && passes_on()) steps_.fail(number_of_return(returned_), {after_}, why);
  }

 private:
  bool is_last() const { return after_ == 0; }
  /// Whether the result goes on from here: it begins at the last, and ends at the one before.
  bool passes_on() const { return after_ != steps_.members() - 1; }

  /// Each piece takes a way of its own from member to member: first those that reduce it, then those of the result.
  uint64_t number_of(int64_t piece, int way) const {
    return first_step + 2 * static_cast<uint64_t>(piece) * static_cast<uint64_t>(steps_.members()) +
           static_cast<uint64_t>(way);
  }
  uint64_t number_of_return(int64_t piece) const { return number_of(piece, steps_.members() + steps_.rank()); }

  Tensor piece_of_result(int64_t piece) const { return piece_of(result_, piece, count_); }

  void send(uint64_t number, const Tensor& tensor) {
    auto sent = steps_.begin(number, {after_}, {}, [&](int) { return tensor; });
    steps_.finish(sent);
  }
  Tensor receive(uint64_t number, const Tensor& expected) {
    auto awaited = steps_.begin(number, {}, {before_}, [](int) { return Tensor(); });
    return steps_.taken(steps_.finish(awaited), before_, expected);
  }

  void reduce(int64_t piece) {
    const auto own = piece_of(input_, piece, count_);
    if (steps_.rank() == 0) {
      ++reduced_;
      return send(number_of(piece, 0), own);
    }
    auto result = piece_of_result(piece);
    const auto so_far = receive(number_of(piece, before_), own);
    // The mean is that of all, so it is formed at the end.
    reduce_into(result, {so_far, own}, op_ == Op::Mean ? Op::Sum : op_);
    if (op_ == Op::Mean && is_last()) result.div_(static_cast<double>(steps_.members()));
    if (!is_last()) {
      ++reduced_;
      return send(number_of(piece, steps_.rank()), result);
    }
    ++returned_;
    send(number_of_return(piece), result);
  }

  void take_around(int64_t piece) {
    if (is_last()) return;
    auto result = piece_of_result(piece);
    result.copy_(receive(number_of(piece, steps_.members() + before_), result));
    if (!passes_on()) return;
    ++returned_;
    send(number_of_return(piece), result);
  }

  Steps& steps_;
  const Op op_;
  const Tensor input_;
  const int before_, after_;
  Tensor result_;
  int64_t count_ = 1;
  int64_t reduced_ = 0, returned_ = 0;  // how many have been sent
};

}  // namespace

Reduction reduce_in_a_ring(const Ticket& ticket, const Signature& signature, const Tensor& input, Op op) {
  Steps steps(ticket, signature, c10::GradMode::is_enabled() && input.requires_grad());
  const c10::AutoGradMode no_history(false);
  Ring ring(steps, input, op);
  try {
    const auto result = ring.run();
    if (!result.defined()) return {};
    return {Steps::shaped(result, input), steps.said()};
  } catch (const std::exception&) {
    ring.fail(base::status_of(std::current_exception()));
    throw;
  }
}

}  // namespace farad::collectives
