#include "autograd/gradient_sums.h"

#include <exception>
#include <utility>

namespace farad::autograd {

void GradientSums::hand_in(std::vector<LeafGradient> gradients, bool differentiable) {
  base::Lock lock(handing_in_);
  found_.push_back({std::move(gradients), differentiable});
}

void GradientSums::add_all(std::vector<Found>& found) {
  {
    base::Lock lock(handing_in_);
    found.swap(found_);
  }
  for (auto& [gradients, differentiable] : found) {
    for (auto& gradient : gradients) {
      const void* const leaf = gradient.leaf.unsafeGetTensorImpl();
      if (!failed_.empty() && failed_.contains(leaf)) continue;  // Better none than a sum that lacks some.
      try {
        sums_.add(std::move(gradient), differentiable);
      } catch (...) {
        failed_.emplace(leaf, base::status_of(std::current_exception()));
      }
    }
  }
}

void GradientSums::add_up() {
  std::vector<Found> found;
  base::Lock lock(adding_up_);
  add_all(found);
}

base::Status GradientSums::read(GradientStore& all) {
  std::vector<Found> found;
  base::Lock lock(adding_up_);
  add_all(found);
  if (!failed_.empty()) return failed_.begin()->second;
  all = sums_;
  return {};
}

base::Status GradientSums::read(const at::Tensor& leaf, std::pair<at::Tensor, Ready>& gradient) {
  std::vector<Found> found;
  base::Lock lock(adding_up_);
  add_all(found);
  if (const auto failed = failed_.find(leaf.unsafeGetTensorImpl()); failed != failed_.end()) return failed->second;
  gradient = sums_.look(leaf);
  return {};
}

void GradientSums::set(const at::Tensor& leaf, at::Tensor gradient) {
  at::Tensor before;  // It may end a graph.
  base::Lock lock(adding_up_);
  before = sums_.find(leaf);
  sums_.set(leaf, std::move(gradient));
}

}  // namespace farad::autograd
