#include "autograd/running_pass.h"

#include <utility>

namespace farad::autograd {
namespace {

thread_local RunningPass* running_here = nullptr;

}  // namespace

RunningPass* running_pass(const torch::autograd::Node* node) {
  return running_here && running_here->node == node ? running_here : nullptr;
}

RunningPassScope::RunningPassScope(RunningPass& pass) : before_(std::exchange(running_here, &pass)) {}
RunningPassScope::~RunningPassScope() { running_here = before_; }

}  // namespace farad::autograd
