#include "collectives/slices.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "collectives/reduced.h"
#include "collectives/steps.h"

namespace farad::collectives {
namespace {

using at::Tensor;

/// While one step's slices are reduced, the next one's are on their way, and so is what came of the one before.
class Slices {
 public:
  Slices(Steps& steps, const Tensor& input, Op op) : steps_(steps), op_(op), input_(flattened(input)) {
    const auto bytes = std::max<size_t>(1, steps.algorithms().slice_bytes * static_cast<size_t>(steps.members()));
    count_ = static_cast<int64_t>(std::max<size_t>(1, (input_.nbytes() + bytes - 1) / bytes));
  }

  Tensor run() {
    auto scattered = scatter();
    std::optional<Session::Attendance> handed_out;
    for (int64_t step = 0; step < count_; ++step) {
      auto came = steps_.finish(scattered);
      if (step == 0) {
        if (!steps_.go_on(came, op_)) return {};
        result_.emplace(steps_.memory_for(input_), steps_.algorithms().stream_from);
      }
      if (step + 1 < count_) scattered = scatter();
      reduce(step, std::move(came));
      auto next = hand_out();
      if (handed_out) take(step - 1, steps_.finish(*handed_out));
      handed_out = std::move(next);
    }
    take(count_ - 1, steps_.finish(*handed_out));
    return result_->whole();
  }

  /// Whoever still waits does so for the first meeting that this member has not come to, of either kind.
  void fail(const base::Status& why) {
    if (scattered_ < count_) steps_.fail(number_of_scatter(scattered_), steps_.others(), why);
    if (handed_out_ < count_) steps_.fail(number_of_hand_out(handed_out_), steps_.others(), why);
  }

 private:
  static uint64_t number_of_hand_out(int64_t step) { return first_step + 2 * static_cast<uint64_t>(step); }
  static uint64_t number_of_scatter(int64_t step) { return step == 0 ? first_meeting : number_of_hand_out(step) - 1; }

  Tensor slice(const Tensor& whole, int64_t step, int member) const {
    return piece_of(whole, step * steps_.members() + member, count_ * steps_.members());
  }

  Session::Attendance scatter() {
    const auto step = scattered_++;
    return steps_.begin(number_of_scatter(step), steps_.others(), steps_.others(),
                        [&](int member) { return slice(input_, step, member); });
  }

  /// Takes what came, so that its memory is free again as soon as it has been read.
  void reduce(int64_t step, Steps::Came came) {
    const auto own = slice(input_, step, steps_.rank());
    std::vector<Tensor> pieces;
    for (int member = 0; member < steps_.members(); ++member) {
      pieces.push_back(member == steps_.rank() ? own : steps_.taken(came, member, own));
    }
    reduced_ = result_->reduce(slice(result_->whole(), step, steps_.rank()), pieces, op_);
  }

  Session::Attendance hand_out() {
    const auto step = handed_out_++;
    return steps_.begin(number_of_hand_out(step), steps_.others(), steps_.others(), [&](int) { return reduced_; });
  }

  void take(int64_t step, const Steps::Came& came) {
    for (const int member : steps_.others()) {
      const auto piece = slice(result_->whole(), step, member);
      result_->put(piece, steps_.taken(came, member, piece));
    }
  }

  Steps& steps_;
  const Op op_;
  const Tensor input_;
  std::optional<Reduced> result_;
  Tensor reduced_;  // The own slice of the last step.
  int64_t count_ = 1;
  int64_t scattered_ = 0, handed_out_ = 0;  // how many of them have begun
};

}  // namespace

Reduction reduce_in_slices(const Ticket& ticket, const Signature& signature, const Tensor& input, Op op) {
  Steps steps(ticket, signature, c10::GradMode::is_enabled() && input.requires_grad());
  const c10::AutoGradMode no_history(false);
  Slices slices(steps, input, op);
  try {
    const auto result = slices.run();
    if (!result.defined()) return {};
    return {Steps::shaped(result, input), steps.said()};
  } catch (const std::exception&) {
    slices.fail(base::status_of(std::current_exception()));
    throw;
  }
}

}  // namespace farad::collectives
