#pragma once

#include <cstdint>
#include <memory>

#include "autograd/ids.h"

namespace farad::autograd {

class LocalContext;

/// The context that calls of this thread are recorded in: one for each worker, or none. `worker` is what that worker's
/// contexts are told apart by.
std::shared_ptr<LocalContext> current(const void* worker);
/// Of whichever worker, for who knows none.
std::shared_ptr<LocalContext> current_of_any();

/// How something came to happen in a context: the which-th thing that happened in the which-th call of the function
/// that was called as the which-th ... It is the same in every run of a program whose functions do the same each time,
/// whatever the order in which threads and messages come; so it can order what must not depend on that.
using Path = uint64_t;
/// Of the `number`-th thing that happens at `path`; 0 is its result.
Path path_of(Path path, uint64_t number);
/// Of what that pass does to it.
Path path_of(Path path, PassId pass);
/// Of the next thing that happens on this thread, in the current context of `worker`, which there is.
Path next_path(const void* worker);
/// What happens on this thread from now on, in that context, happens at `path`.
void set_path(const void* worker, Path path);

/// What happens on this thread from now on happens in `context`, at `path`. Null ends it.
void set_current(const void* worker, std::shared_ptr<LocalContext> context, Path path = 0);

/// For its life, `context` is the current one of this thread; null for none. What happens meanwhile happens at `path`.
class CurrentScope {
 public:
  CurrentScope(const void* worker, std::shared_ptr<LocalContext> context, Path path = 0);
  ~CurrentScope();
  CurrentScope(const CurrentScope&) = delete;

 private:
  const void* const worker_;
  std::shared_ptr<LocalContext> before_;
  Path path_before_ = 0;
  uint64_t happened_before_ = 0;
};

}  // namespace farad::autograd
