#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/data_parallel.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "autograd/torch_compat.h"
#include "base/status.h"

namespace farad::detail {

/// Averages the gradients of parameters over a group, bucket by bucket, while backward goes on.
///
/// Buckets hold the parameters in the order in which backward most likely comes to them, the reverse of that in which
/// they were made, and go out in their own order: so members meet, whatever order their gradients come in. One small
/// sum at the end says what all weigh together, and which parameters have a gradient anywhere.
///
/// One thread at a time.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  Reducer(Group group, const std::vector<at::Tensor>& parameters, DataParallelOptions options);

  /// From now on backwards are heard of, until stop().
  void listen();
  void stop();

  Group& group() { return group_; }
  void set_weight(double weight) { weight_ = weight; }
  /// Backwards between these two are nobody else's concern.
  void be_silent() { ++silent_; }
  void be_heard() { --silent_; }

  /// A plain one of `loss`, which need not reach any of the parameters: then it has zeros to give.
  void backward(const at::Tensor& loss);
  /// Takes part in a backward of the others without gradients of its own; then has the same as they. False if nobody
  /// has had one.
  bool follow();

 private:
  struct Parameter {
    at::Tensor tensor;
    size_t bucket;
    int64_t begin;                               // in the bucket
    autograd::compat::NodePtr accumulator = {};  // A leaf holds it weakly, and the hook is on it.
    uintptr_t hook = 0;
  };
  struct Bucket {
    std::vector<size_t> parameters;
    int64_t elements = 0;
    at::TensorOptions options;
    at::Tensor flat;  // Used again and again, as fresh memory costs more than the copy.
  };
  /// One backward. The engine holds it, so that one that fails leaves nothing behind; then the others hear of it.
  struct Round {
    explicit Round(Reducer& reducer);
    ~Round();
    const std::shared_ptr<Reducer> reducer;
    bool over = false;            // for the others, too
    std::vector<bool> seen;       // by parameter
    std::vector<size_t> missing;  // by bucket: how many parameters
    std::vector<at::Tensor> flats;
    std::vector<Future<at::Tensor>> sums;  // of the buckets that went out
  };
  class Hook;

  void on_gradient(size_t parameter);
  void send_next(Round& round, bool with_gradients);
  Future<at::Tensor> sum_last(at::Tensor flat);
  /// True if anybody had gradients.
  bool finish(Round& round, bool with_gradients);
  bool average(Round& round, bool with_gradients);
  /// The others hear why they wait in vain; the next backward is in step with theirs again.
  void give_up(const base::Status& why);
  void take(const at::Tensor& mean, Bucket& bucket, const at::Tensor& used, bool with_gradients);

  Group group_;
  const DataParallelOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  double weight_ = 1;
  double scale_ = 1;  // A power of two near the mean of all weights, as far as all know it.
  int silent_ = 0;
  bool began_ = false;  // a round, since backward() was called
  std::weak_ptr<Round> round_;
};

}  // namespace farad::detail
