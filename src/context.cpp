#include <farad/autograd.h>
#include <farad/error.h>

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "autograd/drawing.h"
#include "autograd/engine/anomaly.h"
#include "autograd/engine/one.h"
#include "autograd/service.h"
#include "base/check.h"
#include "worker_core.h"

namespace farad {
namespace {

using autograd::LocalContext;
using autograd::Roots;
using torch::autograd::Edge;

Edge edge_of(const at::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

/// Where the pass comes in, and with what; refuses what cannot be differentiated.
Roots roots_of(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients, const char* what) {
  FARAD_CHECK(!roots.empty(), "[autograd] ", what, ": there is nothing to begin with");
  FARAD_CHECK(gradients.empty() || gradients.size() == roots.size(), "[autograd] ", what, ": ", roots.size(),
              " roots and ", gradients.size(), " grad_tensors");
  Roots all;
  for (size_t i = 0; i < roots.size(); i++) {
    const auto& root = roots[i];
    FARAD_CHECK(root.defined() && root.requires_grad(), "[autograd] ", what, ": root ", i,
                " does not require a gradient and has no history");
    at::Tensor gradient = gradients.empty() ? at::Tensor() : gradients[i];
    if (!gradient.defined()) {
      FARAD_CHECK(root.numel() == 1, "[autograd] ", what, ": root ", i, " is no scalar but has ", root.numel(),
                  " elements: give its gradient in grad_tensors, or sum it up");
      gradient = autograd::one_for(root);
    }
    FARAD_CHECK(gradient.sizes() == root.sizes(), "[autograd] ", what, ": root ", i, " is of size ", root.sizes(),
                " and its gradient of ", gradient.sizes());
    all.edges.push_back(edge_of(root));
    all.gradients.push_back(std::move(gradient));
  }
  return all;
}

autograd::Backward::Call call_of(const std::vector<at::Tensor>& roots, const BackwardOptions& options,
                                 const char* what) {
  autograd::Backward::Call call;
  call.roots = roots_of(roots, options.grad_tensors, what);
  call.options.create_graph = options.create_graph;
  call.options.retain_graph = options.retain_graph || options.create_graph;
  call.options.deterministic = options.deterministic;
  call.options.anomaly = autograd::looks_for_nan();
  call.fast = options.mode == Mode::Fast;
  return call;
}

void run_backward(detail::WorkerCore& core, const std::shared_ptr<LocalContext>& context,
                  const std::vector<at::Tensor>& roots, const BackwardOptions& options, const autograd::Limit& limit) {
  auto call = call_of(roots, options, "backward");
  call.limit = limit;
  if (!options.inputs.empty()) {
    call.roots.all_leaves = false;
    call.options.accumulate = false;
    for (const auto& input : options.inputs) {
      FARAD_CHECK(input.defined() && input.requires_grad() && input.is_leaf(),
                  "[autograd] backward: inputs has to name leaves that require a gradient; for others use farad::grad");
      call.roots.leaves.push_back(edge_of(input));
    }
  }
  core.gradients().backward().run(context, std::move(call));
}

void run_backward(detail::WorkerCore& core, const std::shared_ptr<LocalContext>& context,
                  const std::vector<at::Tensor>& roots, const BackwardOptions& options) {
  run_backward(core, context, roots, options, core.gradients().backward().limit_of(options.timeout));
}

/// What is left of it for a call: never none.
std::optional<std::chrono::milliseconds> left_of(const autograd::Limit& limit, base::TimePoint now) {
  using std::chrono::milliseconds;
  if (limit.deadline == base::never) return {};
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(limit.deadline - now));
}

std::shared_ptr<LocalContext> find(detail::WorkerCore& core, int64_t id, const char* what) {
  auto context = core.gradients().contexts().find(autograd::ContextId(id));
  if (!context) {
    throw Error(std::string("[autograd] ") + what + ": " + core.self().name + " knows no context " +
                std::to_string(id) + ", or it has ended");
  }
  return context;
}

autograd::Drawing draw_here(int64_t context) {
  auto& core = detail::WorkerCore::of(Worker::current());
  return autograd::draw(*find(core, context, "dot"));
}

/// The current one of this thread, if it lives: one that has ended on another thread, where it should not, is none.
std::shared_ptr<LocalContext> living_current(autograd::Service& service) {
  auto context = service.current();
  return context && service.contexts().find(context->id()) ? context : nullptr;
}

Gradients read(detail::WorkerCore& core, const std::shared_ptr<LocalContext>& context) {
  return Gradients(core.gradients().backward().gradients(context).entries());
}

}  // namespace

Gradients::Gradients(std::vector<value_type> entries)
    : entries_(std::make_shared<const std::vector<value_type>>(std::move(entries))) {
  for (size_t i = 0; i < entries_->size(); i++) places_.emplace((*entries_)[i].first.unsafeGetTensorImpl(), i);
}

Gradients::iterator Gradients::find(const at::Tensor& leaf) const {
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  return found == places_.end() ? end() : place(found->second);
}

Context::Context(Worker& worker) : core_(detail::WorkerCore::of(worker).shared_from_this()) {
  auto& service = core_->gradients();
  if (const auto other = living_current(service)) {
    throw Error("[autograd] context " + std::to_string(other->id().value) + " is current on this thread of " +
                core_->self().name + ": contexts do not nest; end it first");
  }
  local_ = service.contexts().make();
  service.set_current(local_);
}

Context::Context(Context&&) noexcept = default;

Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    release();
    core_ = std::move(other.core_);
    local_ = std::move(other.local_);
  }
  return *this;
}

Context::~Context() { release(); }

void Context::release() noexcept {
  if (!local_) return;
  auto& service = core_->gradients();
  if (service.current() == local_) service.set_current(nullptr);
  service.contexts().release(local_->id());
  local_.reset();
  core_.reset();
}

int64_t Context::id() const { return local_->id().value; }

void Context::backward(std::vector<at::Tensor> roots, BackwardOptions options) {
  run_backward(*core_, local_, roots, options);
}

void Context::backward(std::vector<RRef<at::Tensor>> roots, BackwardOptions options) {
  // Fetching a root is recorded like any other call, so its gradient goes back to where it lives.
  const auto limit = core_->gradients().backward().limit_of(options.timeout);
  std::vector<at::Tensor> here;
  {
    const autograd::CurrentScope scope(&core_->gradients().contexts(), local_, local_->new_path());
    const c10::AutoGradMode mode(true);
    for (const auto& root : roots) here.push_back(root.to_here(left_of(limit, core_->now())));
  }
  run_backward(*core_, local_, here, options, limit);
}

Gradients Context::gradients() const { return read(*core_, local_); }

at::Tensor Context::gradient(const at::Tensor& leaf) const {
  return core_->gradients().backward().gradient(local_, leaf);
}

std::string Context::dot(const std::vector<at::Tensor>& losses, const std::vector<at::Tensor>& beside) const {
  const auto check = [](const std::vector<at::Tensor>& tensors, const char* what) {
    for (const auto& tensor : tensors) {
      FARAD_CHECK(tensor.defined() && tensor.requires_grad(), "[autograd] dot: ", what, " is ",
                  tensor.defined() ? "a tensor that requires no gradient" : "undefined",
                  ", so there is nothing to draw");
    }
  };
  check(losses, "a loss");
  check(beside, "what is drawn beside");
  auto& service = core_->gradients();
  const autograd::CurrentScope outside(&service.contexts(), nullptr);
  std::vector<autograd::Drawing> parts;
  std::vector<uint16_t> workers{static_cast<uint16_t>(core_->self().rank)};
  for (size_t i = 0; i < workers.size(); i++) {  // Each may name more.
    parts.push_back(i == 0 ? autograd::draw(*local_, losses, beside)
                           : core_->handle().rpc_sync<draw_here>(workers[i], id()));
    for (const auto peer : parts.back().peers) {
      if (std::find(workers.begin(), workers.end(), peer) == workers.end()) workers.push_back(peer);
    }
  }
  return autograd::to_dot(local_->id(), parts);
}

ContextScope::ContextScope(Context& context) : core_(context.core_) {
  auto& service = core_->gradients();
  if (const auto other = living_current(service)) {
    throw Error("[autograd] context " + std::to_string(other->id().value) + " is current on this thread already");
  }
  service.set_current(context.local_, context.local_->new_path());
}

ContextScope::~ContextScope() { core_->gradients().set_current(nullptr); }

int64_t current_context_id() {
  auto* core = detail::WorkerCore::current();
  const auto context = core ? core->gradients().current() : autograd::current_of_any();
  return context ? context->id().value : 0;
}

Gradients gradients(Worker& worker, int64_t context_id) {
  auto& core = detail::WorkerCore::of(worker);
  const auto context = core.gradients().contexts().find(autograd::ContextId(context_id));
  return context ? read(core, context) : Gradients();
}

void backward(Worker& worker, int64_t context_id, std::vector<at::Tensor> roots, BackwardOptions options) {
  auto& core = detail::WorkerCore::of(worker);
  run_backward(core, find(core, context_id, "backward"), roots, options);
}

std::vector<at::Tensor> grad(Context& context, std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                             BackwardOptions options) {
  FARAD_CHECK(options.inputs.empty(), "[autograd] grad: its inputs are an argument, options.inputs must be empty");
  auto call = call_of(outputs, options, "grad");
  call.limit = context.core_->gradients().backward().limit_of(options.timeout);
  call.options.accumulate = false;
  call.roots.all_leaves = false;
  for (size_t i = 0; i < inputs.size(); i++) {
    FARAD_CHECK(inputs[i].defined() && inputs[i].requires_grad(), "[autograd] grad: input ", i,
                " does not require a gradient");
    call.roots.captures.push_back(edge_of(inputs[i]));
  }
  return context.core_->gradients().backward().run(context.local_, std::move(call));
}

}  // namespace farad
