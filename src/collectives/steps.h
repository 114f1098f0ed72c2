#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "collectives/session.h"

namespace farad::collectives {

/// Meetings of an operation have numbers. The first is every operation's and every algorithm's: there each member hears
/// from each other (by doubling: from one other) what that one has called, and whether it wants a gradient. If one
/// does, what can be differentiated takes the place of the other steps, and has a number of its own. A sum in slices
/// or a ring needs none of it: its gradient goes back as if everybody had given its input to everybody, which has that
/// number then.
constexpr uint64_t first_meeting = 0, differentiable_meeting = 1, first_step = 2;

/// What reductions that go step by step have in common: no gradients, and meetings that begin before others are over.
/// One thread; the ticket must outlive it.
class Steps {
 public:
  using Came = std::map<int, Contribution>;

  Steps(const Ticket& ticket, Signature signature, bool requires_grad);

  int rank() const { return session_.rank(); }
  int members() const { return session_.size(); }
  const Algorithms& algorithms() const { return session_.algorithms(); }
  const std::vector<int>& others() const { return others_; }

  /// Of all members or of some; `gives` is asked for what goes to each of `to`. Shapes are said in the first, and in
  /// others if `chain` goes on: who takes part in a chain hears from few, and must agree with each of them.
  Session::Attendance begin(uint64_t which, const std::vector<int>& to, const std::vector<int>& from,
                            const std::function<at::Tensor(int member)>& gives, Session::Chain chain = {});
  /// Waits, and throws what went wrong.
  Came finish(Session::Attendance& attendance);
  /// What that member has sent; throws if it is not like `expected`, as which it will be read.
  at::Tensor taken(const Came& came, int member, const at::Tensor& expected) const;
  /// Those that wait for this member there do so in vain.
  void fail(uint64_t which, const std::vector<int>& members, const base::Status& why);

  /// After a first meeting of all: whether the steps go on. They do unless somebody wants a gradient that needs to know
  /// the inputs.
  bool go_on(const Came& came, Op op);
  /// If somebody wants a gradient and they have gone on: what the others said in the first meeting, without tensors.
  const Came& said() const { return said_; }
  /// Whether an input requires a gradient, of this member or of any that it has heard from, as far as `came` is the
  /// last of that. What is sent from now on says so too.
  bool somebody_wants_a_gradient(const Came& came);
  /// `flat` in the shape of that input. The memory is the same, but nobody is to take it for a view: that could not be
  /// changed in place where gradients are recorded.
  static at::Tensor shaped(const at::Tensor& flat, const at::Tensor& like);
  /// Not cleared, and recycled: to take 128 MiB from the system costs more than to reduce them.
  at::Tensor memory_for(const at::Tensor& like) const;

 private:
  void reserve();

  const Ticket& ticket_;
  Session& session_;
  const std::shared_ptr<void> alive_;  // Keeps the fabric; null if it is gone.
  const bool records_;                 // this member, apart from the steps
  bool requires_grad_;
  Came said_;
  const Signature signature_;
  Signature without_shapes_;
  std::vector<int> others_;
  std::optional<net::Driver::Reservation> reservation_;
};

/// What came of a reduction step by step.
struct Reduction {
  at::Tensor result = {};  ///< without history; undefined if something that can be differentiated has to take its place
  Steps::Came said = {};   ///< see Steps
};

/// The `piece`-th of so many nearly equal ones of a flat tensor.
at::Tensor piece_of(const at::Tensor& flat, int64_t piece, int64_t pieces);

/// `input` as all steps see it: flat, without history.
at::Tensor flattened(const at::Tensor& input);

}  // namespace farad::collectives
