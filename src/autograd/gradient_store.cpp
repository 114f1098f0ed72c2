#include "autograd/gradient_store.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "autograd/engine/accumulate.h"
#include "wire/device.h"

namespace farad::autograd {

void GradientStore::add(LeafGradient more, bool differentiable) {
  const auto [found, added] = places_.try_emplace(more.leaf.unsafeGetTensorImpl(), entries_.size());
  if (added) {
    entries_.emplace_back(std::move(more.leaf), std::move(more.gradient));
    ready_.push_back(std::move(more.ready));
    return;
  }
  auto& sum = entries_[found->second].second;
  auto& ready = ready_[found->second];
  // Whichever thread hears that the pass is over comes here: its own streams have nothing to do with this.
  std::optional<c10::StreamGuard> aside;
  at::Tensor before;  // Held, so that the sum is another tensor: somebody's stream may still read this one.
  if (wire::is_on_device(more.gradient)) {
    aside.emplace(wire::own_stream(more.gradient.device()));
    before = sum;
  }
  ready.wait_here(sum);
  more.ready.wait_here(more.gradient);
  const c10::AutoGradMode mode(differentiable);
  accumulate(sum, std::move(more.gradient));
  ready = Ready(sum);
}

void GradientStore::wait_here() const {
  for (size_t i = 0; i < entries_.size(); i++) ready_[i].wait_here(entries_[i].second);
}

void GradientStore::set(const at::Tensor& leaf, at::Tensor gradient) {
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  if (found == places_.end()) return;
  ready_[found->second] = Ready(gradient);
  entries_[found->second].second = std::move(gradient);
}

at::Tensor GradientStore::find(const at::Tensor& leaf) const {
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  return found == places_.end() ? at::Tensor() : entries_[found->second].second;
}

}  // namespace farad::autograd
