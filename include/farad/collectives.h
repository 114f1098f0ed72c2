#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/future.h>
#include <farad/options.h>
#include <farad/worker.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace farad {

namespace detail {
class Reducer;
}

namespace collectives {
class Session;
template <class R>
struct Call;
}  // namespace collectives

enum class Op { Sum, Mean, Max, Min, Product };

/// Workers that compute something together: every member calls the same operations in the same order, and each is a
/// function of all members' inputs. Members are counted from 0 in the order of `ranks`; roots and the like are meant
/// so.
///
/// **Gradients.** Each operation is differentiable any number of times. The gradient is that of the sum of all members'
/// losses: what a member's input gets is the sum of what every member's loss has of it. So all_reduce(Sum) hands back
/// the sum of the gradients of its results, and all_gather the sum of the gradients of this member's slice. Of Max and
/// Min the gradient goes to whoever won, shared evenly among ties; of Product each gets the product of the others,
/// exact where factors are zero. For the gradient of the mean of the losses, see mean_over().
///
/// Every member takes part in every backward of an operation, the k-th of one with the k-th of the others. In a plain
/// backward() each must reach it in one call, else the others get a Timeout that names operation and member; one whose
/// graph is let go of without a backward counts as zero. Where a member receives nothing (`send`; `reduce` and `gather`
/// off the root) it gets empty tensors that carry the history: add their sum() to the loss, and backward gets there.
///
/// In a plain second backward each must reach the first one's, by the gradients that it got there. Who receives and
/// gives nothing (`recv`; `broadcast` and `scatter` off the root) got none; it can give a tensor that requires one
/// *beside* the operation. That goes nowhere and its gradient is zero, but the gradient of a backward that is recorded
/// (create_graph) carries the history: add its sum() to the second loss. If there is no such tensor, whoever needs that
/// member's part is told at once. In a Context nothing of this is needed.
///
/// **Errors.** Members that come with different operations, shapes, dtypes or roots all get an Error that says who did
/// what. If one does not come there is a Timeout that names it, after `timeout`; if one is lost, PeerLost, and the
/// group is of no use any more: make one of the survivors. In a pass of a Context that timeout does not count, but only
/// the pass's own (BackwardOptions::timeout), and whatever goes wrong, also that a member is lost, is Aborted, as in
/// every pass that fails; the message says the same.
///
/// Results are the same on every member and in every run, to the bit: sums are formed in the order of the members.
/// Inputs may be changed as soon as the call returns, or its future is ready; results share no memory with them.
/// Any thread, but calls that are made at once have no order, and so do not know which of the others' they belong to.
class Group {
 public:
  /// `ranks` of the worker's group, this one's among them; {} = all. Every member makes its own with the same ranks; of
  /// several with the same ranks the k-th of each belong together. Does not wait for the others.
  explicit Group(Worker& worker, std::vector<int> ranks = {}, CallOptions options = {});

  int rank() const;  ///< of this worker, among the members
  int size() const;

  /// The same at all members. Gradient: Sum hands back the sum of all members' gradients of the result, Mean that
  /// divided by the number of members; of Max, Min and Product it goes on as said above.
  at::Tensor all_reduce(at::Tensor input, Op op = Op::Sum);
  /// Of all members, in order; shapes may differ. Gradient: the sum of all members' gradients of this one's slice.
  std::vector<at::Tensor> all_gather(at::Tensor input);
  /// The same, put together along `dim`, in which sizes may differ. Gradient: the same, of this member's part.
  at::Tensor all_gather_cat(at::Tensor input, int64_t dim = 0);
  /// The reduction of what all members gave for this one: inputs[i] is for member i. Gradient: inputs[i] gets what the
  /// op makes of that of member i's result: of Sum, that itself.
  at::Tensor reduce_scatter(std::vector<at::Tensor> inputs, Op op = Op::Sum);
  /// inputs[i] goes to member i; what came from member i is the i-th of the result. Shapes may differ. Gradient: the
  /// same the other way: inputs[i] gets that of what member i has of it.
  std::vector<at::Tensor> all_to_all(std::vector<at::Tensor> inputs);
  /// The root's input. What the others give is beside it, and may be undefined. Gradient: the root gets the sum of all
  /// members' gradients.
  at::Tensor broadcast(at::Tensor input, int root);
  /// At the root; elsewhere empty. Gradient: each gets what the op makes of that of the root's result: of Sum, that
  /// itself.
  at::Tensor reduce(at::Tensor input, int root, Op op = Op::Sum);
  /// At the root, of all members; elsewhere as many empty ones. Shapes may differ. Gradient: each gets that of its
  /// slice at the root.
  std::vector<at::Tensor> gather(at::Tensor input, int root);
  /// This member's of the root's inputs. What the others give is beside them, and may be none. Shapes may differ.
  /// Gradient: the root's inputs[i] gets that of member i's result.
  at::Tensor scatter(std::vector<at::Tensor> inputs, int root);
  /// To one member, which calls recv; no other takes part. Does not wait for it. Empty. Gradient: that of what recv
  /// gave.
  at::Tensor send(at::Tensor input, int to);
  /// What it sent, and its gradient goes back there. `beside` is for second derivatives, see above.
  at::Tensor recv(int from, at::Tensor beside = {});
  /// Each member's input goes `by` members on, and around. Gradient: it comes back from there, by -`by`.
  at::Tensor shift(at::Tensor input, int by);
  /// Returns when every member has called it.
  void barrier();

  /// The same without waiting. The order that counts is that of these calls.
  Future<at::Tensor> all_reduce_async(at::Tensor input, Op op = Op::Sum);
  Future<std::vector<at::Tensor>> all_gather_async(at::Tensor input);
  Future<at::Tensor> all_gather_cat_async(at::Tensor input, int64_t dim = 0);
  Future<at::Tensor> reduce_scatter_async(std::vector<at::Tensor> inputs, Op op = Op::Sum);
  Future<std::vector<at::Tensor>> all_to_all_async(std::vector<at::Tensor> inputs);
  Future<at::Tensor> broadcast_async(at::Tensor input, int root);
  Future<at::Tensor> reduce_async(at::Tensor input, int root, Op op = Op::Sum);
  Future<std::vector<at::Tensor>> gather_async(at::Tensor input, int root);
  Future<at::Tensor> scatter_async(std::vector<at::Tensor> inputs, int root);
  Future<at::Tensor> recv_async(int from, at::Tensor beside = {});
  Future<at::Tensor> shift_async(at::Tensor input, int by);
  Future<void> barrier_async();

 private:
  friend class detail::Reducer;  // It goes on after a step that failed at one member.

  template <class R>
  R run(const collectives::Call<R>& call);
  template <class R>
  Future<R> start(collectives::Call<R> call);

  std::shared_ptr<detail::WorkerCore> core_;
  std::shared_ptr<collectives::Session> session_;
};

/// `loss` as it has to be for the gradient of the *mean* of the members' losses, instead of their sum:
/// `mean_over(group, loss).backward()`.
at::Tensor mean_over(const Group& group, const at::Tensor& loss);

}  // namespace farad
