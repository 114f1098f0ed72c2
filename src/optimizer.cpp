#include <farad/optim.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "optim/coordinator.h"
#include "worker_core.h"

namespace farad {
namespace {

using optim::Participant;
using optim::Standing;
using optim::StepId;

optim::Service& service_here() { return detail::WorkerCore::of(Worker::current()).optim(); }

// --- What workers call at each other ---

std::shared_ptr<Participant> make_participant(optim::ShardPlan plan) {
  return std::make_shared<Participant>(service_here(), std::move(plan));
}
Standing ask_here(uint64_t optimizer, uint64_t step, int leader) {
  return service_here().ledger().asked({optimizer, step}, leader);
}
Future<Standing> await_here(uint64_t optimizer, uint64_t step) {
  return service_here().ledger().awaited({optimizer, step});
}
Future<Standing> commit_here(uint64_t optimizer, uint64_t step) {
  return service_here().ledger().commit({optimizer, step});
}
Future<Standing> abort_here(uint64_t optimizer, uint64_t step) {
  return service_here().ledger().abort({optimizer, step});
}

/// Of calls that say how a step ends: it stays open until that is known, so they must not be given up.
constexpr CallOptions patient{std::chrono::milliseconds(0)};

std::vector<int64_t> ids_of(const std::vector<Context*>& contexts) {
  FARAD_CHECK(!contexts.empty(), "[optim] step: give at least one context");
  std::vector<int64_t> ids;
  for (const auto* context : contexts) {
    FARAD_CHECK(context, "[optim] step: context ", ids.size(), " is null");
    ids.push_back(context->id());
  }
  return ids;
}

}  // namespace

std::unique_ptr<optim::Service> detail::WorkerCore::make_optim() {
  const auto& self = agent_->fabric().self();
  optim::Ledger::Services services;
  services.self = self.rank.value;
  services.ask = [this](int owner, StepId step, int leader) {
    return handle_->with(patient).rpc_async<ask_here>(owner, step.optimizer, step.number, leader);
  };
  services.await = [this](int owner, StepId step) {
    return handle_->with(patient).rpc_async<await_here>(owner, step.optimizer, step.number);
  };
  services.begin_work = [this] { agent_->begin_work(); };
  services.end_work = [this] { agent_->end_work(); };
  services.later = [this](std::function<void()> task) { run(std::move(task)); };
  return std::make_unique<optim::Service>(*gradients_, self.rank, self.birth, std::move(services));
}

AnyOptimizer::AnyOptimizer(Worker& worker, std::vector<Settled> groups) {
  auto& core = detail::WorkerCore::of(worker);
  std::vector<optim::Coordinator::Group> settled;
  for (auto& group : groups) settled.push_back({std::move(group.parameters), std::move(group.settings)});
  const auto& here = core.handle();
  const auto make = [&here](int owner, optim::ShardPlan plan) {
    return here.remote<make_participant>(owner, std::move(plan));
  };
  const auto commit = [&here](int owner, StepId step) {
    return here.with(patient).rpc_async<commit_here>(owner, step.optimizer, step.number);
  };
  const auto abort = [&here](int owner, StepId step) {
    return here.with(patient).rpc_async<abort_here>(owner, step.optimizer, step.number);
  };
  const auto now = [&core] { return core.now(); };
  optim::Coordinator::Services services{core.handle(),          core.optim(),           make, commit, abort, now,
                                        core.agent().timeout(), core.shared_from_this()};
  coordinator_ = std::make_unique<optim::Coordinator>(std::move(services), settled);
}

AnyOptimizer::AnyOptimizer(AnyOptimizer&&) noexcept = default;
AnyOptimizer& AnyOptimizer::operator=(AnyOptimizer&&) noexcept = default;
AnyOptimizer::~AnyOptimizer() = default;

void AnyOptimizer::step(Context& context) { coordinator_->step({context.id()}); }
void AnyOptimizer::step(const std::vector<Context*>& contexts) { coordinator_->step(ids_of(contexts)); }

bool AnyOptimizer::step_if_finite(const std::vector<Context*>& contexts, double scale) {
  FARAD_CHECK(scale > 0, "[optim] step_if_finite: gradients cannot be divided by ", scale);
  return coordinator_->step(ids_of(contexts), scale, true);
}

void AnyOptimizer::save(const std::string& directory) { coordinator_->save(directory); }
void AnyOptimizer::load(const std::string& directory) { coordinator_->load(directory); }

double AnyOptimizer::clip_grad_norm(Context& context, double max_norm) {
  return coordinator_->clip_grad_norm(context.id(), max_norm);
}
void AnyOptimizer::clip_grad_value(Context& context, double max_value) {
  coordinator_->clip_grad_value(context.id(), max_value);
}

size_t AnyOptimizer::group_count() const { return coordinator_->rates().size(); }

void AnyOptimizer::set_lr(double lr) {
  for (size_t i = 0; i < group_count(); i++) set_lr(i, lr);
}
void AnyOptimizer::set_lr(size_t group, double lr) {
  FARAD_CHECK(group < group_count(), "[optim] there are ", group_count(), " parameter groups, none is number ", group);
  FARAD_CHECK(lr >= 0, "[optim] ", lr, " is no learning rate");
  coordinator_->base_rates()[group] = coordinator_->rates()[group] = lr;
}
void AnyOptimizer::scale_lr(size_t group, double factor) {
  const double lr = coordinator_->base_rates()[group] * factor;
  FARAD_CHECK(lr >= 0, "[optim] ", lr, " is no learning rate");
  coordinator_->rates()[group] = lr;
}
double AnyOptimizer::lr() const { return lr(0); }
double AnyOptimizer::lr(size_t group) const {
  FARAD_CHECK(group < group_count(), "[optim] there are ", group_count(), " parameter groups, none is number ", group);
  return coordinator_->rates()[group];
}

}  // namespace farad
