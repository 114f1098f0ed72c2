#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>
#include <farad/future.h>
#include <farad/module.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace farad {

namespace detail {
class Reducer;
}

/// How a bucket of gradients, which is one flat tensor, is summed over all members: into one of the same length and
/// dtype.
using BucketHook = std::function<Future<at::Tensor>(Group& group, at::Tensor bucket)>;

/// As it is.
Future<at::Tensor> sum_bucket(Group& group, at::Tensor bucket);
/// Sent and summed in 16 bits, which is half the traffic of float32. The first has the finer steps, the second the
/// range of float32.
Future<at::Tensor> sum_bucket_as_half(Group& group, at::Tensor bucket);
Future<at::Tensor> sum_bucket_as_bfloat16(Group& group, at::Tensor bucket);

struct DataParallelOptions {
  size_t bucket_bytes = size_t{4} << 20;  ///< gradients are summed when about as many are ready
  BucketHook hook = sum_bucket;           ///< the same at all members
};

/// The same module at every member of a group, each with its own inputs: a plain backward() leaves the mean of all
/// members' gradients in `.grad`, the same to the bit everywhere, so that equal optimizers keep the modules equal.
///
/// Gradients are summed in buckets, each as soon as it is full, while backward goes on with the others. Which
/// parameters a loss has no part in is found out by itself: a parameter that some members use gets the mean with zero
/// from the others, one of which no member has a `.grad` is left alone. But of a loss that reaches no
/// parameter of the module at all nothing is heard unless backward() below is called for it.
///
/// Every member calls the same: for each backward of one there is one of each other, or that one has joined. If a
/// member is lost backward throws PeerLost; if it does not come, Timeout. If one's backward fails half-way, those of
/// the others throw at once, and say whose it was. Gradients are then of no use, here and there; except after a loss,
/// the next backward is in step again.
///
/// Only plain backwards that are not recorded: in a Context, or with create_graph, use the group's own operations.
/// One thread at a time.
class DataParallel {
 public:
  /// Nothing else uses `group` from now on: make one for each. Waits for the others. Parameters and buffers become
  /// those of member 0. Throws at every member, naming the first difference, if the modules are not alike.
  template <class Module>
  DataParallel(Module& module, Group group, DataParallelOptions options = {})
      : DataParallel(detail::module_in(module), std::move(group), std::move(options), Anything{}) {}
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;
  /// Gradients are this member's own from now on.
  ~DataParallel();

  /// What this member's gradients count in the mean, from the next backward on; 1 at first. If each member's loss is
  /// the mean over a batch, and batches differ in size, then their sizes make the gradients those of the mean over all.
  /// Only ratios count.
  void set_weight(double weight);

  /// Like `loss.backward()`, also if that does not reach a parameter, or has no gradient at all: then it counts as
  /// zero. If it fails before it has reached one, the others hear of that too.
  void backward(const at::Tensor& loss);

  /// While it lives, backward adds to `.grad` here and nobody waits. The next one without it averages what has
  /// gathered.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<detail::Reducer> reducer);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    const std::shared_ptr<detail::Reducer> reducer_;
  };
  [[nodiscard]] NoSync no_sync() const { return NoSync(reducer_); }

  /// For members that run out of inputs at different times: each calls this when it has none left. Until all have, it
  /// takes part in the others' backwards, with weight zero, and calls `step` after each: what the others do then with
  /// the gradients, so that this module stays equal to theirs. Throws what a backward would; then call it again.
  void join(const std::function<void()>& step);

  /// Makes the buffers those of member 0 again. Every member calls it.
  void broadcast_buffers();

 private:
  struct Anything {};
  DataParallel(const torch::nn::Module& module, Group group, DataParallelOptions options, Anything);

  std::shared_ptr<detail::Reducer> reducer_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace farad
