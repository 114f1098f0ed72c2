// Functions that are run again while a pass goes through them: each has a recording of its own, and a pass over it.

#include <farad/error.h>

#include <utility>

#include "autograd/backward.h"
#include "autograd/current.h"
#include "rpc/protocol.h"
#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t vain_bytes = 1 + sizeof(int64_t) + sizeof(uint64_t);  // which, context, rerun

}  // namespace

void Backward::run_within(const RunningPass& outer, const std::vector<at::Tensor>& gradients,
                          const std::function<std::vector<at::Tensor>()>& compute) {
  const auto& context = outer.context;
  auto part = std::make_shared<Part>();
  part->options = outer.part.options;
  part->options.retain_graph = false;
  part->options.rerun = RerunId(recorder_.new_pairs().value);  // It is nobody else's, in any life of this worker.
  part->limit = outer.part.limit;
  auto& roots = part->roots.emplace();
  roots.all_leaves = outer.part.options.accumulate;
  if (outer.part.is_root()) {
    // What the outer pass is after may be used by the function, and lead nowhere else.
    roots.all_leaves = outer.part.roots->all_leaves;
    roots.leaves = outer.part.roots->leaves;
    roots.captures = outer.part.roots->captures;
  }
  try {
    std::vector<at::Tensor> outputs;
    {
      const CurrentScope afresh(&contexts_, context);  // Whatever happened before, it happens at the same paths.
      const RerunScope scope(part->options.rerun);
      outputs = compute();
    }
    for (size_t i = 0; i < outputs.size(); i++) {
      if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      roots.edges.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
      roots.gradients.push_back(gradients[i]);
    }
    Work work;
    if (!context->begin_within(outer.part.id, part, work)) throw Aborted("[autograd] the pass around it has ended");
    complete(context, *part, std::move(work));
  } catch (...) {
    // Those that were called need not have heard of its pass, at whose end they would forget.
    forget(context, part->options.rerun);
    throw;
  }
  auto captured = part->evaluator->take_captured();
  for (size_t i = 0; i < captured.size(); i++) outer.part.evaluator->add_captured(i, std::move(captured[i]));
}

/// Tells all who may have something of it, who tell others in turn: each once.
void Backward::forget(const std::shared_ptr<LocalContext>& context, RerunId rerun) {
  Work work;
  const auto others = context->forget(rerun, work);
  for (const auto other : others) {
    wire::Message message;
    message.kind = static_cast<uint8_t>(rpc::Kind::Above);
    message.body.resize(vain_bytes);
    char* next = wire::put(message.body.data(), static_cast<uint8_t>(Mail::Vain));
    wire::put(wire::put(next, context->id().value), rerun.value);
    (void)services_.fabric.post(other, std::move(message)).status;  // One that is gone has nothing.
  }
  perform(context, std::move(work));
}

base::Status Backward::on_vain(std::span<const char> body) {
  if (body.size() != vain_bytes) {
    return {base::Code::Protocol, "[autograd] a message of what was run again in vain that is cut off"};
  }
  const char* next = body.data() + 1;
  const ContextId id(wire::take<int64_t>(next));
  const RerunId rerun(wire::take<uint64_t>(next));
  // That is what all that was run once has.
  if (rerun == RerunId()) return {base::Code::Protocol, "[autograd] what was run again in vain has no number"};
  if (const auto context = contexts_.find(id)) forget(context, rerun);
  return {};
}

}  // namespace farad::autograd
