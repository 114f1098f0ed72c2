#include "autograd/current.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace farad::autograd {
namespace {

using Entry = std::pair<const void*, std::shared_ptr<LocalContext>>;

/// Nearly always of one entry or none: a thread seldom works for two workers.
thread_local std::vector<Entry> current_here;

std::vector<Entry>::iterator find(const void* worker) {
  return std::find_if(current_here.begin(), current_here.end(), [&](const Entry& e) { return e.first == worker; });
}

}  // namespace

std::shared_ptr<LocalContext> current(const void* worker) {
  const auto found = find(worker);
  return found == current_here.end() ? nullptr : found->second;
}

std::shared_ptr<LocalContext> current_of_any() { return current_here.empty() ? nullptr : current_here.back().second; }

void set_current(const void* worker, std::shared_ptr<LocalContext> context) {
  const auto found = find(worker);
  if (found == current_here.end()) {
    if (context) current_here.emplace_back(worker, std::move(context));
  } else if (context) {
    found->second = std::move(context);
  } else {
    current_here.erase(found);
  }
}

CurrentScope::CurrentScope(const void* worker, std::shared_ptr<LocalContext> context)
    : worker_(worker), before_(current(worker)) {
  set_current(worker, std::move(context));
}

CurrentScope::~CurrentScope() { set_current(worker_, std::move(before_)); }

}  // namespace farad::autograd
