#include "autograd/engine/evaluator.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "autograd/engine/accumulate.h"
#include "autograd/engine/anomaly.h"
#include "autograd/engine/fit.h"
#include "autograd/engine/opaque_node.h"

namespace farad::autograd {
namespace {

EvaluatorOptions normalized(EvaluatorOptions options) {
  options.retain_graph = options.retain_graph || options.create_graph;
  return options;
}

std::vector<Need> needs_of(const Plan& plan, const EvaluatorOptions& options) {
  if (options.all_leaves) return {};
  auto wanted = options.leaves;
  for (NodeIndex node = 0; node < plan.nodes.size(); node++) {
    if (dynamic_cast<const OpaqueNode*>(plan.nodes[node])) wanted.push_back(node);
  }
  return find_needed(plan.topology, wanted, options.captures);
}

}  // namespace

Evaluator::Evaluator(std::shared_ptr<const Plan> plan, EvaluatorOptions options)
    : plan_(std::move(plan)),
      options_(normalized(std::move(options))),
      needs_(needs_of(*plan_, options_)),
      streams_(*plan_),
      buffers_(plan_->inputs(), options_.deterministic),
      captured_(options_.captures.size()),
      captured_ready_(options_.captures.size()) {
  for (size_t i = 0; i < options_.captures.size(); i++) captures_.emplace_back(options_.captures[i].node, i);
  std::sort(captures_.begin(), captures_.end());
}

Evaluator::Scope::Scope(const Evaluator& evaluator) {
  if (evaluator.options_.state) state_.emplace(*evaluator.options_.state);
  if (c10::InferenceMode::is_enabled()) no_inference_.emplace(false);
  recording_.emplace(evaluator.options_.create_graph);
}

base::Status Evaluator::feed(Link to, at::Tensor gradient) {
  if (!gradient.defined()) return {};
  try {
    fit(gradient, plan_->nodes[to.node]->input_metadata(to.input), to.input);
    add(to, InputBuffers::outside, std::move(gradient));
    return {};
  } catch (...) {
    return failure(to.node);
  }
}

void Evaluator::add(Link to, uint32_t by, at::Tensor gradient) {
  const uint32_t input = plan_->first_input[to.node] + to.input;
  streams_.pass(gradient, to.node, [&] { buffers_.add(input, by, std::move(gradient)); });
}

template <class AnyNode>
void Evaluator::collect(NodeIndex index, AnyNode& node) {
  inputs_.clear();
  const uint32_t end = plan_->first_input[index + 1];
  for (uint32_t input = plan_->first_input[index]; input < end; input++) inputs_.push_back(buffers_.take(input));

  if (compat::has_tensor_hooks(node)) {
    const size_t count = inputs_.size();
    compat::call_tensor_hooks(node, inputs_);
    TORCH_CHECK(inputs_.size() == count, "has a hook that turned ", count, " gradients into ", inputs_.size());
  }
  if (!captures_.empty()) capture(index);
}

void Evaluator::capture(NodeIndex index) {
  auto wanted = std::lower_bound(captures_.begin(), captures_.end(), std::pair(index, size_t(0)));
  for (; wanted != captures_.end() && wanted->first == index; ++wanted) {
    add_captured(wanted->second, inputs_[options_.captures[wanted->second].input]);
  }
}

void Evaluator::add_captured(size_t place, at::Tensor gradient) {
  if (!gradient.defined()) return;
  auto& captured = captured_[place];
  if (captured.defined()) captured_ready_[place].wait_here(captured);
  accumulate(captured, std::move(gradient));
  captured_ready_[place] = Ready(captured);
}

std::vector<at::Tensor> Evaluator::take_captured() {
  for (size_t i = 0; i < captured_.size(); i++) captured_ready_[i].wait_here(captured_[i]);
  return std::move(captured_);
}

base::Status Evaluator::run(NodeIndex index) {
  if (need(index) == Need::Nothing) return {};
  Node& node = *plan_->nodes[index];
  try {
    const auto stream = streams_.enter(index);
    if (plan_->topology.roles[index] == Role::Leaf) {
      call_leaf(index, static_cast<compat::AccumulateGrad&>(node));
    } else {
      call_function(index, node);
    }
    return {};
  } catch (...) {
    return failure(index);
  }
}

base::Status Evaluator::take(NodeIndex index, std::vector<at::Tensor>& gradients) {
  Node& node = *plan_->nodes[index];
  try {
    const auto stream = streams_.enter(index);
    collect(index, node);
    compat::call_pre_hooks(node, inputs_);
    variable_list none;
    for (const auto& hook : node.post_hooks()) none = (*hook)(none, inputs_);
    gradients = std::exchange(inputs_, {});
    if (!streams_.none()) wire::finish_here(gradients);
    return {};
  } catch (...) {
    return failure(index);
  }
}

void Evaluator::call_function(NodeIndex index, Node& node) {
  collect(index, node);
  if (need(index) == Need::Capture) return inputs_.clear();
  compat::call_pre_hooks(node, inputs_);
  if (!options_.retain_graph) node.will_release_variables();

  variable_list outputs;
  const bool hooked = !node.post_hooks().empty();
  if (hooked) {
    outputs = node(variable_list(inputs_));
  } else {
    outputs = node(std::move(inputs_));
    inputs_.clear();  // Whoever held the last reference to a gradient but for us can be added to in place.
  }

  fit_all(index, outputs);
  if (hooked) {
    const size_t count = outputs.size();
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, inputs_);
    inputs_.clear();
    TORCH_CHECK(outputs.size() == count, "has a post hook that turned ", count, " gradients into ", outputs.size());
  }
  if (!options_.retain_graph) node.release_variables();
  if (options_.anomaly || looks_for_nan()) check_for_nan(outputs);
  pass_on(index, outputs);
}

void Evaluator::fit_all(NodeIndex index, variable_list& outputs) {
  const auto links = plan_->topology.links_of(index);
  TORCH_CHECK(outputs.size() == links.size(), "returned an invalid number of gradients - expected ", links.size(),
              ", but got ", outputs.size());
  for (size_t i = 0; i < links.size(); i++) {
    if (links[i].node == no_node) continue;
    fit(outputs[i], plan_->nodes[links[i].node]->input_metadata(links[i].input), i);
  }
}

base::Status Evaluator::begin(NodeIndex index, variable_list& inputs) {
  Node& node = *plan_->nodes[index];
  try {
    const auto stream = streams_.enter(index);
    collect(index, node);
    compat::call_pre_hooks(node, inputs_);
    inputs = std::exchange(inputs_, {});
    if (!streams_.none()) wire::finish_here(inputs);  // Whoever computes it may do so in another stream.
    return {};
  } catch (...) {
    return failure(index);
  }
}

base::Status Evaluator::end(NodeIndex index, const std::function<variable_list()>& compute, bool& live) {
  Node& node = *plan_->nodes[index];
  try {
    auto outputs = compute();
    fit_all(index, outputs);
    const size_t count = outputs.size();
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, {});
    TORCH_CHECK(outputs.size() == count, "[autograd] a hook of ", node.name(), " returned ", outputs.size(),
                " gradients instead of ", count);
    live = std::any_of(outputs.begin(), outputs.end(), [](const at::Tensor& output) { return output.defined(); });
    if (options_.anomaly || looks_for_nan()) check_for_nan(outputs);
    pass_on(index, outputs);
    return {};
  } catch (...) {
    return failure(index);
  }
}

void Evaluator::pass_on(NodeIndex index, variable_list& outputs) {
  const Topology& topology = plan_->topology;
  const uint32_t first = topology.first_link[index];
  for (size_t i = 0; i < outputs.size(); i++) {
    const Link& link = topology.links[first + i];
    if (link.node == no_node || !outputs[i].defined() || need(link.node) == Need::Nothing) continue;
    add(link, InputBuffers::by_link(first + i), std::move(outputs[i]));
  }
}

void Evaluator::call_leaf(NodeIndex index, compat::AccumulateGrad& leaf) {
  collect(index, leaf);
  if (need(index) == Need::Capture) return inputs_.clear();
  compat::call_pre_hooks(leaf, inputs_);
  if (inputs_[0].defined() && leaf.variable.requires_grad()) {
    TORCH_CHECK(!leaf.variable.grad_fn(), "leaf variable has been moved into the graph interior");
    const bool hooked = !leaf.post_hooks().empty();
    at::Tensor gradient = hooked ? inputs_[0] : std::move(inputs_[0]);
    gradients_.push_back({leaf.variable, own_gradient(leaf.variable, std::move(gradient), hooked)});
    gradients_.back().ready = Ready(gradients_.back().gradient);
    compat::call_post_accumulate_hooks(leaf);
  }
  variable_list none;
  for (const auto& hook : leaf.post_hooks()) none = (*hook)(none, inputs_);
  inputs_.clear();
}

base::Status Evaluator::failure(NodeIndex index) {
  inputs_.clear();
  Node& node = *plan_->nodes[index];
  const base::Status cause = base::status_of(std::current_exception());
  const bool tell = options_.anomaly || torch::autograd::AnomalyMode::is_enabled();
  return {cause.code(),
          "[autograd] node " + node.name() + ": " + cause.message() + (tell ? where_made(node) : std::string())};
}

}  // namespace farad::autograd
