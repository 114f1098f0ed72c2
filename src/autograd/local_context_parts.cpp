// Of LocalContext: what those who run a part of a pass, wait for it, or read what came of it, do in turns.

#include <utility>

#include "autograd/local_context.h"

namespace farad::autograd {

LocalContext::Work LocalContext::completed(Part& part, Part::Completion completion) {
  Work work;
  base::Lock lock(mutex_);
  if (part.ended) return work;
  part.completions.push_back(std::move(completion));
  if (std::exchange(part.running, true)) return work;
  if (part.waiter) {
    work.waiters.push_back(std::move(part.waiter));
  } else if (!part.is_root()) {
    work.woken.push_back(part.shared_from_this());
  }
  return work;
}

void LocalContext::take_next(Part& part, Next& next) {
  next.arrivals.clear();
  next.arrivals.swap(part.arrivals);
  next.completions.clear();
  next.completions.swap(part.completions);
  next.deferred = false;
  next.node = part.ended ? no_node : passes_.next_ready(part.id);
  if (next.none()) part.running = false;
}

void LocalContext::next(Part& part, Next& next) {
  base::Lock lock(mutex_);
  take_next(part, next);
}

void LocalContext::ran(Part& part, Next& next, Work& work) {
  base::Lock lock(mutex_);
  if (!part.ended) {
    for (const auto& completion : next.completions)
      passes_.ran(part.id, completion.node, work.effects, completion.live);
    if (next.node != no_node && !next.deferred) {
      if (!next.answer.empty()) part.answers[next.node] = std::exchange(next.answer, {});
      passes_.ran(part.id, next.node, work.effects);
    }
    gather(work);
  }
  take_next(part, next);
}

bool LocalContext::has_news(Part& part, const std::shared_ptr<net::Waiter>& waiter) {
  base::Lock lock(mutex_);
  if (part.ended || part.held || part.running) return true;
  part.waiter = waiter;
  return false;
}

bool LocalContext::is_over(const Part& part) const {
  base::Lock lock(mutex_);
  return part.ended || part.held;
}

bool LocalContext::is_settled() const {
  base::Lock lock(mutex_);
  return released_ || passes_.active() == 0;
}

LocalContext::Work LocalContext::read(const std::shared_ptr<net::Waiter>& waiter) {
  Work work;
  base::Lock lock(mutex_);
  if (released_) {
    work.waiters.push_back(waiter);
    return work;
  }
  readers_.emplace(++read_, waiter);
  passes_.read(read_, work.effects);
  gather(work);
  return work;
}

std::shared_ptr<GradientSums> LocalContext::sums() const {
  base::Lock lock(mutex_);
  return sums_;
}

void LocalContext::set_gradient(const at::Tensor& leaf, at::Tensor gradient) {
  if (const auto sums = this->sums()) sums->set(leaf, std::move(gradient));
}

}  // namespace farad::autograd
