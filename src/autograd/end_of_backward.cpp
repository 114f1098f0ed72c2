#include "autograd/end_of_backward.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>

namespace farad::autograd {

thread_local BackwardWithin* BackwardWithin::here_ = nullptr;

BackwardWithin::BackwardWithin() : around_(std::exchange(here_, this)) {}

BackwardWithin::~BackwardWithin() {
  if (here_ == this) here_ = around_;
}

void BackwardWithin::hand_on() {
  here_ = around_;
  for (auto& callback : callbacks_) at_end_of_backward(std::move(callback));
}

void at_end_of_backward(std::function<void()> callback) {
  if (auto* const within = BackwardWithin::here_) {
    within->callbacks_.push_back(std::move(callback));
  } else {
    torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
  }
}

}  // namespace farad::autograd
