#include "autograd/current.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace farad::autograd {
namespace {

struct Entry {
  const void* worker;
  std::shared_ptr<LocalContext> context;
  Path path = 0;
  uint64_t happened = 0;
};

/// Nearly always of one entry or none: a thread seldom works for two workers.
thread_local std::vector<Entry> current_here;

std::vector<Entry>::iterator find(const void* worker) {
  return std::find_if(current_here.begin(), current_here.end(), [&](const Entry& e) { return e.worker == worker; });
}

}  // namespace

std::shared_ptr<LocalContext> current(const void* worker) {
  const auto found = find(worker);
  return found == current_here.end() ? nullptr : found->context;
}

std::shared_ptr<LocalContext> current_of_any() { return current_here.empty() ? nullptr : current_here.back().context; }

void set_current(const void* worker, std::shared_ptr<LocalContext> context, Path path) {
  const auto found = find(worker);
  if (found == current_here.end()) {
    if (context) current_here.push_back({worker, std::move(context), path});
  } else if (context) {
    *found = {worker, std::move(context), path};
  } else {
    current_here.erase(found);
  }
}

// Any function that spreads will do: two paths that meet by chance are only in no fixed order.
Path path_of(Path path, uint64_t number) {
  uint64_t x = path + 0x9e3779b97f4a7c15 * (number + 1);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

Path path_of(Path path, PassId pass) {
  return path_of(path, ~(uint64_t{pass.root.value} << 48 | pass.number));  // No thread does so many things.
}

void set_path(const void* worker, Path path) {
  auto& here = *find(worker);
  here.path = path;
  here.happened = 0;
}

Path next_path(const void* worker) {
  auto& here = *find(worker);
  return path_of(here.path, ++here.happened);
}

CurrentScope::CurrentScope(const void* worker, std::shared_ptr<LocalContext> context, Path path) : worker_(worker) {
  if (const auto found = find(worker); found != current_here.end()) {
    before_ = std::move(found->context);
    path_before_ = found->path;
    happened_before_ = found->happened;
  }
  set_current(worker, std::move(context), path);
}

CurrentScope::~CurrentScope() {
  set_current(worker_, std::move(before_));
  if (const auto found = find(worker_); found != current_here.end()) {
    found->path = path_before_;
    found->happened = happened_before_;
  }
}

}  // namespace farad::autograd
