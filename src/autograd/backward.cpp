#include "autograd/backward.h"

#include <farad/error.h>

#include <exception>
#include <string_view>
#include <utility>

#include "autograd/current.h"

namespace farad::autograd {
namespace {

PassFailure failure_of(base::Rank culprit, const base::Status& why) { return {why.code(), culprit, why.message()}; }

constexpr std::string_view layer = "[autograd] ";

/// Of what went wrong: said once it is enough.
std::string without_layer(const std::string& what) { return what.substr(what.starts_with(layer) ? layer.size() : 0); }

/// As the one who began it reads it.
std::string message_of(const LocalContext& context, const Part& part) {
  const auto& group = context.group();
  return std::string(layer) + "backward pass " + std::to_string(part.id.number) + " of " + group.name_of(part.id.root) +
         " in context " + std::to_string(context.id().value) + " failed at " + group.name_of(part.failure.culprit) +
         ": " + without_layer(part.failure.what);
}

void raise(const LocalContext& context, const base::Status& status) {
  if (status.ok()) return;
  throw Error(std::string(layer) + "gradients of context " + std::to_string(context.id().value) + " at " +
              context.group().name_of(context.group().self) + ": " + without_layer(status.message()));
}

/// What others have to come to before a part goes on, if anything.
std::string waits_of(const Part& part) {
  std::string names;
  for (const auto& deferred : part.deferred) {
    if (!deferred.begun.load() || deferred.over.load()) continue;
    names += (names.empty() ? "" : "; ") + deferred.node->waits_for(deferred.which);
  }
  return names.empty() ? "" : "; it waits for others in " + names;
}

}  // namespace

Backward::Backward(Services services, Contexts& contexts, Recorder& recorder)
    : services_(std::move(services)), contexts_(contexts), recorder_(recorder) {}

/// What a thread is at while take_turn() runs.
class Backward::Turn {
 public:
  Turn(const Backward& backward, const LocalContext& context, bool keeps)
      : keeps(keeps), backward_(backward), context_(context), before_(std::exchange(here_, this)) {}
  ~Turn() { here_ = before_; }
  Turn(const Turn&) = delete;

  /// This thread's, if it is at that context; else null.
  static Turn* at(const Backward& backward, const LocalContext& context) {
    return here_ && &here_->backward_ == &backward && &here_->context_ == &context ? here_ : nullptr;
  }

  const bool keeps;           ///< what is to be sent, until its end
  base::Duration spent = {};  ///< on sending what was not kept

 private:
  static thread_local Turn* here_;

  const Backward& backward_;
  const LocalContext& context_;
  Turn* const before_;  // A node may run another pass.
};

thread_local Backward::Turn* Backward::Turn::here_ = nullptr;

thread_local bool Backward::is_timer_ = false;

void Backward::run_on_timer(const std::function<void()>& task) {
  is_timer_ = true;
  task();
  is_timer_ = false;
}

/// What is to be sent meanwhile goes at its end, as one message to each worker, if that has been short so far. Should
/// it last this time, what was kept goes within a moment all the same: see keep().
template <class Task>
void Backward::take_turn(const std::shared_ptr<LocalContext>& context, net::Cost& cost, const Task& work) {
  const auto& runtime = services_.fabric.runtime();
  const auto start = runtime.now();
  bool kept = false;
  {
    const Turn turn(*this, *context, cost.is_short());
    work();
    kept = turn.keeps;
    cost.note(runtime.now() - start - turn.spent);
  }
  if (kept) post(outbox_.take(*context));
}

// --- The thread that calls backward ---

Limit Backward::limit_of(std::chrono::milliseconds timeout) const {
  if (timeout.count() == 0) return {};
  return {base::deadline_after(services_.fabric.runtime().now(), timeout), timeout, {}};
}

std::vector<at::Tensor> Backward::run(const std::shared_ptr<LocalContext>& context, Call call) {
  auto part = std::make_shared<Part>();
  part->options = call.options;
  part->roots = std::move(call.roots);
  part->limit = call.limit;
  Work work;
  if (!context->begin(call.fast, encode(call.options), part, work)) {
    throw Error("[autograd] backward: context " + std::to_string(context->id().value) + " has ended");
  }
  part->limit.pass = part->id;
  complete(context, *part, std::move(work));
  return part->evaluator ? part->evaluator->take_captured() : std::vector<at::Tensor>();
}

/// Of a part that begins here with `work`. However this thread leaves it, the others do not wait for it for ever.
void Backward::complete(const std::shared_ptr<LocalContext>& context, Part& part, Work&& work) {
  try {
    run_to_the_end(context, part, work);
  } catch (...) {
    fail(context, part.id, base::status_of(std::current_exception()));
    throw;
  }
  if (!part.held && !part.committed) throw Aborted(message_of(*context, part));
}

/// Runs what it can, and waits in between, until there is nothing more to be done.
void Backward::run_to_the_end(const std::shared_ptr<LocalContext>& context, Part& part, Work& work) {
  auto& driver = services_.fabric.driver();
  take_turn(context, cost_of_beginning_, [&] {
    perform_here(context, work);
    run_part(context, part);
  });
  while (true) {
    const auto waiter = driver.make_waiter();
    if (!context->has_news(part, waiter) && !driver.wait(*waiter, part.limit.deadline)) {
      perform(context, timed_out(*context, part));
    }
    if (context->is_over(part)) return;
    take_turn(context, cost_of_going_on_, [&] { run_part(context, part); });
  }
}

void Backward::wait_until_settled(const std::shared_ptr<LocalContext>& context) {
  if (context->is_settled()) return;
  auto& driver = services_.fabric.driver();
  const auto waiter = driver.make_waiter();
  perform(context, context->read(waiter));
  driver.wait(*waiter, base::never);
}

GradientStore Backward::gradients(const std::shared_ptr<LocalContext>& context) {
  wait_until_settled(context);
  GradientStore gradients;
  if (const auto sums = context->sums()) raise(*context, sums->read(gradients));
  gradients.wait_here();
  return gradients;
}

at::Tensor Backward::gradient(const std::shared_ptr<LocalContext>& context, const at::Tensor& leaf) {
  wait_until_settled(context);
  std::pair<at::Tensor, Ready> found;
  if (const auto sums = context->sums()) raise(*context, sums->read(leaf, found));
  found.second.wait_here(found.first);
  return std::move(found.first);
}

// --- Running a part ---

void Backward::begin_part(const std::shared_ptr<LocalContext>& context, Work::Begun& begun) {
  auto& part = *begun.part;
  if (const auto sums = context->sums()) sums->add_up();
  auto status = part.options_status;
  if (part.options.deterministic) {
    // The order of sums is that of the plan's numbers, which are given in the order of entries.
    const auto path = [](const auto& send) { return send->passage().path; };
    std::ranges::stable_sort(begun.entries.sends, {}, path);
  }
  if (status.ok()) status = make_evaluator(part, begun.entries);
  if (!status.ok()) return fail(context, part.id, status);
  const auto& plan = part.plan;
  const Snapshot snapshot{{plan, &plan->topology}, plan->roots, std::move(begun.peers), std::move(begun.lost)};
  perform(context, context->scanned(part, snapshot));
}

base::Status Backward::make_evaluator(Part& part, const Entries& entries) {
  auto plan = std::make_shared<Plan>();
  if (auto status = scan(entries, *plan); !status.ok()) return status;
  EvaluatorOptions options{part.options.create_graph, part.options.retain_graph, part.options.deterministic,
                           part.options.anomaly, part.options.accumulate};
  // Whatever the pass is after, others wait for these.
  for (const auto& deferred : part.deferred) options.leaves.push_back(plan->table.find(deferred.node.get()));
  if (part.is_root()) {
    options.all_leaves = part.roots->all_leaves;
    for (const auto& leaf : part.roots->leaves) {
      if (const auto link = plan->find(leaf); link.node != no_node) options.leaves.push_back(link.node);
    }
    for (const auto& captured : part.roots->captures) options.captures.push_back(plan->find(captured));
  }
  part.plan = plan;
  part.evaluator = std::make_unique<Evaluator>(plan, std::move(options));
  if (!part.is_root()) return {};
  const Evaluator::Scope scope(*part.evaluator);
  for (size_t i = 0; i < part.roots->gradients.size(); i++) {
    auto status = part.evaluator->feed(plan->roots[i], part.roots->gradients[i]);
    if (!status.ok()) return status;
  }
  return {};
}

void Backward::run_part(const std::shared_ptr<LocalContext>& context, Part& part) {
  LocalContext::Next next;
  context->next(part, next);
  if (next.none()) return;
  const auto run = [&] {
    // Hooks may make calls: these are recorded where the pass is, if the pass is recorded at all.
    const CurrentScope current(&contexts_, context);
    const Evaluator::Scope scope(*part.evaluator);
    RunningPass running{*this, context, part};
    const RunningPassScope running_scope(running);
    while (!next.none()) {
      Work work;
      if (part.limit.deadline != base::never && services_.fabric.runtime().now() >= part.limit.deadline) {
        work = timed_out(*context, part);
        context->next(part, next);
      } else if (auto status = run_next(context, part, next, running); status.ok()) {
        context->ran(part, next, work);
      } else {
        work = failed(*context, part.id, status);
        context->next(part, next);
      }
      perform(context, std::move(work));
    }
  };
  services_.run_as_worker(std::ref(run));  // What is referred to needs no memory.
}

base::Status Backward::run_next(const std::shared_ptr<LocalContext>& context, Part& part, LocalContext::Next& next,
                                RunningPass& running) {
  for (auto& completion : next.completions) {
    auto status = part.evaluator->end(completion.node, completion.result, completion.live);
    if (!status.ok()) return status;
  }
  for (auto& arrival : next.arrivals) {
    for (uint32_t i = 0; i < arrival.gradients.size(); i++) {
      if (!arrival.gradients[i].defined()) continue;
      auto status = part.evaluator->feed({arrival.send, i}, std::move(arrival.gradients[i]));
      if (!status.ok()) return status;
    }
  }
  if (next.node == no_node) return {};
  if (part.plan->topology.roles[next.node] == Role::Recv) return part.evaluator->take(next.node, next.answer);
  if (auto status = part.plan->why_barred(next.node); !status.ok()) return status;
  if (part.options.deterministic) set_path(&contexts_, path_of(path_of(0, part.id), next.node));
  running.node = part.plan->nodes[next.node];
  if (!part.deferred.empty()) {
    const auto found = part.deferred_by_node.find(running.node);
    if (found != part.deferred_by_node.end()) {
      next.deferred = true;
      return begin_deferred(context, part, next.node, *found->second);
    }
  }
  return part.evaluator->run(next.node);
}

base::Status Backward::begin_deferred(const std::shared_ptr<LocalContext>& context, Part& part, NodeIndex node,
                                      Part::Deferred& deferred) {
  torch::autograd::variable_list gradients;
  if (auto status = part.evaluator->begin(node, gradients); !status.ok()) return status;
  if (deferred.begun.exchange(true)) return {};
  try {
    deferred.node->begin(deferred.which, std::move(gradients),
                         [this, context, part = part.shared_from_this(), node, &deferred](DeferredNode::Result result) {
                           deferred.over.store(true);
                           perform(context, context->completed(*part, {node, std::move(result), true}));
                         });
    return {};
  } catch (...) {
    return base::status_of(std::current_exception());
  }
}

Backward::Work Backward::failed(LocalContext& context, PassId pass, const base::Status& why) {
  return context.step(
      [&](Passes& passes, Effects& effects) { passes.fail(pass, failure_of(context.group().self, why), effects); });
}

void Backward::fail(const std::shared_ptr<LocalContext>& context, PassId pass, const base::Status& why) {
  perform(context, failed(*context, pass, why));
}

/// One within it ends with it.
Backward::Work Backward::timed_out(LocalContext& context, const Part& part) {
  return failed(
      context, part.limit.pass,
      {base::Code::Timeout, "not done in " + std::to_string(part.limit.timeout.count()) + " ms" + waits_of(part)});
}

// --- What a pass wants done ---

void Backward::perform(const std::shared_ptr<LocalContext>& context, Work&& work) {
  const bool ends_graphs = is_timer_ && work.has_graphs();
  if (work.is_light() && !ends_graphs) return perform_light(context, work);
  // What takes long is not done where messages are taken in, nor by the timer.
  if (!is_timer_ && !services_.fabric.driver().driving_here()) return perform_here(context, work);
  perform_light(context, work);
  auto& cost = work.begun.empty() ? cost_of_going_on_ : cost_of_beginning_;
  services_.run(cost, [this, context, &cost, work = std::make_shared<Work>(std::move(work))] {
    take_turn(context, cost, [&] { perform_here(context, *work); });
  });
}

void Backward::perform_here(const std::shared_ptr<LocalContext>& context, Work& work) {
  perform_light(context, work);
  for (auto& begun : std::exchange(work.begun, {})) begin_part(context, begun);
  for (const auto& part : work.woken) run_part(context, *part);
}

void Backward::perform_light(const std::shared_ptr<LocalContext>& context, Work& work) {
  auto messages = std::exchange(work.effects.messages, {});
  for (size_t i = 0; i < messages.size(); i++) send(context, messages[i], std::move(work.tensors[i]));
  for (const auto& waiter : std::exchange(work.waiters, {})) waiter->complete();
  for (const auto& part : work.ended) {
    if (part && !part->committed) give_up_deferred(*part);
  }
  for (const auto& node : std::exchange(work.deferred, {})) node->end();
}

/// Others wait for what these have to say, and would not learn by themselves that they will not.
void Backward::give_up_deferred(Part& part) {
  for (auto& deferred : part.deferred) {
    const bool begun = deferred.begun.exchange(true);
    deferred.node->give_up(deferred.which, begun, {part.failure.code, part.failure.what});
  }
}

// --- Messages ---

void Backward::send(const std::shared_ptr<LocalContext>& context, Effects::Outgoing& outgoing,
                    std::vector<at::Tensor> tensors) {
  Outbox::Letter letter{context, std::move(outgoing.message), std::move(tensors)};
  Turn* const turn = Turn::at(*this, *context);
  if (letter.message.kind == PassKind::Commit || (turn && turn->keeps)) return keep(outgoing.to, std::move(letter));
  const auto start = services_.fabric.runtime().now();
  Outbox::Parcel parcel{outgoing.to, {}};
  parcel.letters.push_back(std::move(letter));
  post(parcel);
  if (turn) turn->spent += services_.fabric.runtime().now() - start;
}

/// Whoever keeps something sends it soon. But he may be held up in a node whose hook waits for what it would bring
/// about; and nobody has to send commits.
void Backward::keep(base::Rank to, Outbox::Letter letter) {
  const bool commit = letter.message.kind == PassKind::Commit;
  if (outbox_.keep(to, std::move(letter))) services_.later([this] { run_on_timer([this] { send_all(); }); });
  if (commit) post(outbox_.take_if_many(to));
}

}  // namespace farad::autograd
