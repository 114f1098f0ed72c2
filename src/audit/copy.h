#pragma once

#include <farad/audit.h>

#include <string>
#include <utility>
#include <vector>

namespace farad::audit {

/// Tensors under their names, in the form in which a shared::Model takes a module.
struct Tensors {
  struct Item {
    std::string name;
    at::Tensor tensor;
    const std::string& key() const { return name; }
    const at::Tensor& value() const { return tensor; }
  };
  std::vector<Item> parameters, buffers;
  const std::vector<Item>& named_parameters() const { return parameters; }
  const std::vector<Item>& named_buffers() const { return buffers; }
};

/// A learner with what the audit does with it. One thread.
class Copy {
 public:
  /// With the fault that the options name, if it is one of those that lie in how gradients are computed.
  Copy(const Training& training, const Options& options);

  Tensors& tensors() { return tensors_; }
  const std::vector<at::Tensor>& trained() const { return trained_; }
  const std::vector<std::string>& names() const { return names_; }
  const Learner& learner() const { return learner_; }
  int64_t elements() const;

  at::Tensor values() const;
  /// The parameters become these; buffers what they were at first.
  void load(const at::Tensor& flat);
  bool wants_average() const { return !average_.empty(); }
  void load_average(const at::Tensor& flat);

  /// What a worker computes that update from. Odd workers take two batches at once for their first, so that sizes are
  /// not all equal.
  Batch batch(int worker, uint64_t sequence) const;
  Batch concatenate(const std::vector<Batch>& batches) const;

  void clear_gradients();
  /// Adds to those that there are.
  void backward(const Batch& batch) { learner_.gradients(batch); }
  /// As they are now, not copied.
  std::vector<at::Tensor> gradients() const;
  /// Of this batch alone.
  at::Tensor flat_gradient(const Batch& batch);
  /// Computed in the other way, if there is one.
  at::Tensor flat_reference(const Batch& batch);

 private:
  const int rounds_;
  Learner learner_;
  Tensors tensors_;
  std::vector<at::Tensor> trained_;
  std::vector<std::string> names_;                        // of those
  std::vector<at::Tensor> average_;                       // of those
  std::vector<std::pair<at::Tensor, at::Tensor>> first_;  // what is not trained, and what it was
};

}  // namespace farad::audit
