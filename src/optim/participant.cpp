#include "optim/participant.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>
#include <farad/worker.h>

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/engine/accumulate.h"
#include "base/check.h"

namespace farad::optim {
namespace {

/// Of one owner's parameters, checked.
std::vector<Shard::Group> local_groups(const ShardPlan& plan) {
  std::vector<Shard::Group> groups;
  std::set<const void*> seen;
  for (const auto& group : plan.groups) {
    auto& local = groups.emplace_back();
    local.settings = group.settings;
    for (size_t i = 0; i < group.parameters.size(); i++) {
      const auto& parameter = group.parameters[i].local_value();
      const auto number = group.numbers.at(i);
      FARAD_CHECK(parameter.defined(), "[optim] parameter ", number, " is undefined");
      FARAD_CHECK(parameter.is_leaf(), "[optim] parameter ", number,
                  " was computed from others: only leaves can be optimized");
      FARAD_CHECK(at::isFloatingType(parameter.scalar_type()) || at::isComplexType(parameter.scalar_type()),
                  "[optim] parameter ", number, " is of type ", parameter.dtype(), ", which has no gradient");
      FARAD_CHECK(seen.insert(parameter.unsafeGetTensorImpl()).second, "[optim] parameter ", number,
                  " was given before: each may be given once");
      local.parameters.push_back(parameter);
    }
  }
  return groups;
}

std::vector<at::Tensor> parameters_of(const std::vector<Shard::Group>& groups) {
  std::vector<at::Tensor> all;
  for (const auto& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

std::vector<int64_t> numbers_of(const ShardPlan& plan) {
  std::vector<int64_t> all;
  for (const auto& group : plan.groups) all.insert(all.end(), group.numbers.begin(), group.numbers.end());
  return all;
}

/// Rounded once: neither 1 / 100000 nor the norm of a large gradient is a number that a Half can be.
at::Tensor times(const at::Tensor& gradient, double factor) {
  const auto type = gradient.scalar_type();
  return gradient.to(at::toOpMathType(type)).mul(factor).to(type);
}

/// The numbers that a gradient is made of.
at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.coalesce().values() : gradient;
}

}  // namespace

/// A step at this owner, from its beginning to its vote.
struct Participant::Run {
  StepId step;
  std::function<bool()> prepare;  // As Shard::prepare.
  bool wait = false;              // for the parameters
  bool commit = false;            // at once
  bool granted = false;           // the parameters are ours
  Promise<Vote> vote = {};
};

Participant::Participant(Service& worker, ShardPlan plan)
    : worker_(worker),
      optimizer_(plan.optimizer),
      owners_(plan.owners),
      numbers_(numbers_of(plan)),
      parameters_(parameters_of(local_groups(plan))),
      shard_(local_groups(plan)) {}

Future<Vote> Participant::prepare(const Recipe& recipe) { return start(recipe, false); }
Future<Vote> Participant::step(const Recipe& recipe) { return start(recipe, true); }

Future<Vote> Participant::start(const Recipe& recipe, bool commit) {
  auto run = std::make_shared<Run>();
  run->step = id(recipe.step);
  run->wait = recipe.wait;
  run->commit = commit;
  run->prepare = [this, recipe] { return shard_.prepare(gradients_of(recipe), recipe.rates, recipe.finite); };
  return begin(run);
}

Future<Vote> Participant::prepare_images(uint64_t step, const std::vector<ParameterImage>& images) {
  auto run = std::make_shared<Run>();
  run->step = id(step);
  run->wait = true;
  run->prepare = [this, images] {
    std::vector<Shard::Image> ours;
    for (const auto number : numbers_) {
      const auto image =
          std::find_if(images.begin(), images.end(), [&](const ParameterImage& each) { return each.number == number; });
      FARAD_CHECK(image != images.end(), "[optim] there is nothing of parameter ", number);
      auto& mine = ours.emplace_back();
      mine.value = image->value;
      if (image->remembered) mine.state = ParameterState{image->state, image->steps};
    }
    shard_.prepare(ours);
    return true;
  };
  return begin(run);
}

std::vector<ParameterImage> Participant::images() const {
  std::vector<ParameterImage> images;
  for (auto& mine : shard_.images()) {
    auto& image = images.emplace_back();
    image.number = numbers_[images.size() - 1];
    image.value = mine.value.cpu();
    image.remembered = mine.state.has_value();
    if (!mine.state) continue;
    image.steps = mine.state->steps;
    for (const auto& [name, tensor] : mine.state->tensors) image.state.emplace(name, tensor.cpu());
  }
  return images;
}

Future<Vote> Participant::begin(const std::shared_ptr<Run>& run) {
  const auto vote = run->vote.future();
  Ledger::Entry entry;
  entry.owners = owners_;
  entry.finish = [self = shared_from_this(), run](bool committed) {
    if (!run->granted) return;
    std::exception_ptr error;
    try {
      committed ? self->shard_.apply() : self->shard_.drop();
    } catch (...) {
      error = std::current_exception();
    }
    self->worker_.locks().unlock(run->step);
    if (error) std::rethrow_exception(error);
  };
  entry.interrupt = [self = shared_from_this(), step = run->step] { self->worker_.locks().give_up(step); };
  if (!worker_.ledger().open(run->step, std::move(entry))) {
    run->vote.set_value(Vote::Over);
    return vote;
  }
  // Whose loss came before the step was opened will not be heard of again.
  const bool orphan = cancelled();
  if (!orphan) run->granted = worker_.locks().try_lock(run->step, shard_.parameters());
  if (orphan || run->granted || !run->wait) {
    compute(run);
    return vote;
  }
  worker_.locks().lock(run->step, shard_.parameters(), [self = shared_from_this(), run](bool granted) {
    run->granted = granted;
    self->worker_.later([self, run] { self->compute(run); });
  });
  // Who gave the step up before it waited has found nobody to interrupt.
  if (!worker_.ledger().is_open(run->step)) worker_.locks().give_up(run->step);
  return vote;
}

void Participant::compute(const std::shared_ptr<Run>& run) {
  auto vote = run->wait ? Vote::Over : Vote::Busy;  // Who waits and does not get them has been told to wait no more.
  std::exception_ptr error;
  if (run->granted) {
    try {
      vote = run->prepare() ? Vote::Ready : Vote::NotFinite;
    } catch (...) {
      error = std::current_exception();
    }
  }
  const bool ready = vote == Vote::Ready;
  if (!worker_.ledger().prepared(run->step, ready) && ready) vote = Vote::Over;
  if (vote == Vote::Ready && run->commit) {
    const auto ended = worker_.ledger().commit(run->step);
    try {
      if (!ended.ready() || ended.wait() != Standing::Committed) vote = Vote::Over;
    } catch (...) {
      error = std::current_exception();
    }
  }
  error ? run->vote.set_exception(error) : run->vote.set_value(vote);
}

Shard::GradientOf Participant::gradients_of(const Recipe& recipe) {
  std::vector<autograd::GradientStore> stores;
  for (const auto id : recipe.contexts) {
    const auto context = worker_.gradients().contexts().find(autograd::ContextId(id));
    if (context) stores.push_back(worker_.gradients().backward().gradients(context));
  }
  return [stores = std::move(stores), scale = recipe.scale](const at::Tensor& parameter) {
    at::Tensor sum;
    for (const auto& store : stores) {
      const auto gradient = store.find(parameter);
      if (gradient.defined()) autograd::accumulate(sum, gradient.detach());
    }
    return sum.defined() && scale != 1 ? times(sum, 1 / scale) : sum;
  };
}

double Participant::squared_norm(int64_t context) {
  const c10::NoGradGuard no_grad;
  Recipe recipe;
  recipe.contexts = {context};
  const auto gradient_of = gradients_of(recipe);
  double sum = 0;
  for (const auto& parameter : parameters_) {
    const auto gradient = gradient_of(parameter);
    if (!gradient.defined()) continue;
    const auto type = at::toOpMathType(gradient.scalar_type());
    const auto norm = at::linalg_vector_norm(values_of(gradient.to(type))).item<double>();
    sum += norm * norm;
  }
  return sum;
}

void Participant::scale_gradients(int64_t context, double factor) {
  change_gradients(context, [&](const at::Tensor& gradient) { return times(gradient, factor); });
}

void Participant::clamp_gradients(int64_t context, double limit) {
  change_gradients(context, [&](const at::Tensor& gradient) {
    if (!gradient.is_sparse()) return gradient.clamp(-limit, limit);
    const auto one = gradient.coalesce();
    return at::sparse_coo_tensor(one.indices(), one.values().clamp(-limit, limit), one.sizes());
  });
}

void Participant::change_gradients(int64_t id, const std::function<at::Tensor(const at::Tensor&)>& change) {
  const c10::NoGradGuard no_grad;
  const auto context = worker_.gradients().contexts().find(autograd::ContextId(id));
  if (!context) return;
  const auto store = worker_.gradients().backward().gradients(context);
  for (const auto& parameter : parameters_) {
    const auto gradient = store.find(parameter);
    if (gradient.defined()) context->set_gradient(parameter, change(gradient));
  }
}

}  // namespace farad::optim
