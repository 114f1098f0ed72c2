#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/checkpoint.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace farad {

namespace autograd {
class LocalContext;
}

enum class Mode {
  Smart,  ///< exact for every program, and always ends
  Fast,   ///< less traffic where every recorded call is used; where one is not, it fails and names that call
};

struct BackwardOptions {
  std::vector<at::Tensor> grad_tensors = {};  ///< needed for roots that are no scalars; an undefined one stands for 1
  std::vector<at::Tensor> inputs = {};        ///< accumulate into these leaves only; nothing accumulates elsewhere
  bool retain_graph = false;                  ///< implied by create_graph
  bool create_graph = false;                  ///< gradients are differentiable, across workers too
  Mode mode = Mode::Smart;
  std::chrono::milliseconds timeout{0};  ///< for the whole pass, but no node is stopped that runs; none by default
  /// A fixed order of summation: equal runs give equal bits, on the same workers. No order is fixed among calls that
  /// several threads make in one context, among passes that run at once, and among the checkpoints of a pass.
  bool deterministic = false;
};

/// The gradients of one context on one worker: pairs of leaf and gradient, in the order in which leaves were reached.
class Gradients {
 public:
  using value_type = std::pair<at::Tensor, at::Tensor>;

  Gradients() = default;
  explicit Gradients(std::vector<value_type> entries);

  /// Where a pair lies. As a Tensor it is the pair's gradient, at end() an undefined one. May outlive the Gradients it
  /// is of, as in `auto found = context.gradients().find(leaf)`; any two ends are equal.
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Gradients::value_type;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = const value_type&;

    iterator() = default;
    iterator(std::shared_ptr<const std::vector<value_type>> entries, size_t index)
        : entries_(std::move(entries)),
          at_(entries_ ? entries_->data() + index : nullptr),
          end_(entries_ ? entries_->data() + entries_->size() : nullptr) {}
    reference operator*() const { return *at_; }
    pointer operator->() const { return at_; }
    iterator& operator++() {
      ++at_;
      return *this;
    }
    iterator operator++(int) {
      auto before = *this;
      ++at_;
      return before;
    }
    bool operator==(const iterator& other) const {
      return at_ == other.at_ || (at_ == end_ && other.at_ == other.end_);
    }

    operator at::Tensor() const { return at_ == end_ ? at::Tensor() : at_->second; }
    bool defined() const { return at_ != end_; }

   private:
    std::shared_ptr<const std::vector<value_type>> entries_;
    pointer at_ = nullptr;
    pointer end_ = nullptr;
  };

  iterator begin() const { return place(0); }
  iterator end() const { return place(size()); }
  size_t size() const { return entries_ ? entries_->size() : 0; }
  bool empty() const { return size() == 0; }
  /// end() if that leaf has no gradient.
  iterator find(const at::Tensor& leaf) const;

 private:
  iterator place(size_t index) const { return {entries_, index}; }

  std::shared_ptr<const std::vector<value_type>> entries_;
  std::unordered_map<const void*, size_t> places_;
};

/// Records every call made in it, on every worker that takes part, so that gradients can go back the same ways.
///
/// While it lives it is current on the thread that made it, where it also has to end; its end releases it on every
/// worker. Any thread may call its functions. Move-only.
class Context {
 public:
  /// Throws if one is current on this thread for that worker: contexts do not nest.
  explicit Context(Worker& worker);
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  /// Unique in the group.
  int64_t id() const;

  /// Computes the gradients of the sum of `roots` for every leaf they lead to, on every worker, and adds them to this
  /// context's; no `.grad` is touched. All or nothing: throws Aborted, naming the worker and the node, if the pass
  /// fails anywhere, and no gradient of it is seen. Several passes may run at once.
  void backward(std::vector<at::Tensor> roots, BackwardOptions options = {});
  /// Of roots that live elsewhere. To fetch them counts for options.timeout too, and may throw what to_here() does.
  void backward(std::vector<RRef<at::Tensor>> roots, BackwardOptions options = {});

  /// This worker's, of all passes that have succeeded.
  Gradients gradients() const;
  /// Undefined where there is none.
  at::Tensor gradient(const at::Tensor& leaf) const;

  /// The graph of this context over all workers, for Graphviz. With `losses` of this worker, what they lead to is
  /// marked, and each node says in brackets how many gradients a pass from them would bring it. What made `beside`, of
  /// this worker too, is drawn as well, whether anything leads there or not.
  std::string dot(const std::vector<at::Tensor>& losses = {}, const std::vector<at::Tensor>& beside = {}) const;

 private:
  friend class ContextScope;
  friend std::vector<at::Tensor> grad(Context&, std::vector<at::Tensor>, std::vector<at::Tensor>, BackwardOptions);

  void release() noexcept;

  std::shared_ptr<detail::WorkerCore> core_;
  std::shared_ptr<autograd::LocalContext> local_;
};

/// Makes a live context current on this thread too, for its own life.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  std::shared_ptr<detail::WorkerCore> core_;
};

/// Of this thread; 0 = none.
int64_t current_context_id();

/// What a worker of the context has accumulated; empty if it knows no such context.
Gradients gradients(Worker& worker, int64_t context_id);
/// Like Context::backward, on any worker of the context.
void backward(Worker& worker, int64_t context_id, std::vector<at::Tensor> roots, BackwardOptions options = {});

/// Like torch::autograd::grad, over calls: the gradients of the sum of `outputs` for `inputs`, undefined where one is
/// not reached. Adds nothing to the context's gradients on any worker. `options.inputs` must be empty.
std::vector<at::Tensor> grad(Context& context, std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                             BackwardOptions options = {});

}  // namespace farad
