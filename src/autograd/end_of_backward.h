#pragma once

#include <functional>
#include <vector>

namespace farad::autograd {

/// Called once the plain backward that runs on this thread is done: all of it, also where a checkpoint's is within it,
/// which libtorch's engine takes for one by itself. A backward that fails drops it. Throws c10::Error if none runs.
void at_end_of_backward(std::function<void()> callback);

/// While it lives, the plain backward that runs on this thread is part of another one.
class BackwardWithin {
 public:
  BackwardWithin();
  ~BackwardWithin();  ///< drops what is to be called, unless it was handed on
  BackwardWithin(const BackwardWithin&) = delete;

  /// It is done: what was to be called then is called at the end of the other one. Last.
  void hand_on();

 private:
  friend void at_end_of_backward(std::function<void()> callback);
  static thread_local BackwardWithin* here_;

  BackwardWithin* const around_;  // It may itself be within one.
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace farad::autograd
