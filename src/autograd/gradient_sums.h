#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/gradient_store.h"
#include "base/mutex.h"
#include "base/status.h"

namespace farad::autograd {

/// What the passes of one context have found for this worker's leaves. Any thread.
///
/// A pass that is committed hands it in, which takes a few instructions and cannot fail. To add it up takes time, and
/// may fail, when the verdict cannot be changed any more: so that is done by whoever reads, and by the next pass when
/// it begins here, so that there is never much to be added up. The order is that in which passes were committed.
class GradientSums {
 public:
  void hand_in(std::vector<LeafGradient> gradients, bool differentiable) EXCLUDES(handing_in_);
  /// What cannot be added up, whoever reads it will hear of.
  void add_up() EXCLUDES(handing_in_, adding_up_);

  /// Adds up first; says why not if the gradients of any leaf could not be.
  [[nodiscard]] base::Status read(GradientStore& all) EXCLUDES(handing_in_, adding_up_);
  /// Of that leaf, and when it may be used; undefined if there is none.
  [[nodiscard]] base::Status read(const at::Tensor& leaf, std::pair<at::Tensor, Ready>& gradient)
      EXCLUDES(handing_in_, adding_up_);
  /// Replaces what is there for `leaf`, if anything is.
  void set(const at::Tensor& leaf, at::Tensor gradient) EXCLUDES(adding_up_);

 private:
  struct Found {
    std::vector<LeafGradient> gradients;
    bool differentiable = false;
  };
  /// Into `found`, which is to end without the lock: what is not added up may be the last that holds a graph.
  void add_all(std::vector<Found>& found) REQUIRES(adding_up_) EXCLUDES(handing_in_);

  base::Mutex handing_in_;
  std::vector<Found> found_ GUARDED_BY(handing_in_);

  base::Mutex adding_up_;  // Held while sums are formed: by those only who need them.
  GradientStore sums_ GUARDED_BY(adding_up_);
  std::unordered_map<const void*, base::Status> failed_ GUARDED_BY(adding_up_);  // By TensorImpl, which sums_ keeps.
};

}  // namespace farad::autograd
