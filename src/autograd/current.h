#pragma once

#include <memory>

namespace farad::autograd {

class LocalContext;

/// The context that calls of this thread are recorded in: one for each worker, or none. `worker` is what that worker's
/// contexts are told apart by.
std::shared_ptr<LocalContext> current(const void* worker);
/// Of whichever worker, for who knows none.
std::shared_ptr<LocalContext> current_of_any();
/// Null ends it.
void set_current(const void* worker, std::shared_ptr<LocalContext> context);

/// For its life, `context` is the current one of this thread; null for none.
class CurrentScope {
 public:
  CurrentScope(const void* worker, std::shared_ptr<LocalContext> context);
  ~CurrentScope();
  CurrentScope(const CurrentScope&) = delete;

 private:
  const void* const worker_;
  std::shared_ptr<LocalContext> before_;
};

}  // namespace farad::autograd
