#include "autograd/gradient_store.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/engine/accumulate.h"
#include "base/check.h"
#include "wire/device.h"

namespace farad::autograd {

size_t GradientStore::place_of(const at::Tensor& leaf) const {
  if (entries_.size() <= few) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](auto& e) { return e.first.is_same(leaf); });
    return found == entries_.end() ? nowhere : static_cast<size_t>(found - entries_.begin());
  }
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  return found == places_.end() ? nowhere : found->second;
}

void GradientStore::add(LeafGradient more, bool differentiable) {
  const size_t place = place_of(more.leaf);
  if (place == nowhere) {
    entries_.emplace_back(std::move(more.leaf), std::move(more.gradient));
    ready_.push_back(std::move(more.ready));
    if (entries_.size() <= few) return;
    for (size_t i = places_.size(); i < entries_.size(); i++) places_[entries_[i].first.unsafeGetTensorImpl()] = i;
    return;
  }
  auto& sum = entries_[place].second;
  auto& ready = ready_[place];
  // Libtorch would repeat the smaller one.
  FARAD_CHECK(sum.sizes() == more.gradient.sizes(), "[autograd] a leaf has gradients of size ", sum.sizes(), " and of ",
              more.gradient.sizes(), " from two passes, which cannot be added up: it was given other data in between");
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
  const size_t place = place_of(leaf);
  if (place == nowhere) return;
  ready_[place] = Ready(gradient);
  entries_[place].second = std::move(gradient);
}

at::Tensor GradientStore::find(const at::Tensor& leaf) const {
  const size_t place = place_of(leaf);
  return place == nowhere ? at::Tensor() : entries_[place].second;
}

std::pair<at::Tensor, Ready> GradientStore::look(const at::Tensor& leaf) const {
  const size_t place = place_of(leaf);
  if (place == nowhere) return {};
  return {entries_[place].second, ready_[place]};
}

}  // namespace farad::autograd
