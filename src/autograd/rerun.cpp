#include "autograd/rerun.h"

#include <utility>

namespace farad::autograd {
namespace {

thread_local RerunId rerun_here;

}  // namespace

RerunId current_rerun() { return rerun_here; }

RerunScope::RerunScope(RerunId rerun) : before_(std::exchange(rerun_here, rerun)) {}
RerunScope::~RerunScope() { rerun_here = before_; }

}  // namespace farad::autograd
