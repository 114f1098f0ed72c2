#include "sim/model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <farad/autograd.h>
#include <farad/rref.h>
#include <farad/worker.h>
#include <torch/csrc/autograd/autograd.h>

namespace farad::test {
namespace {

using at::Tensor;
using net::sim::Random;
using Tensors = std::vector<Tensor>;

template <class T>
const T& pick(const std::vector<T>& from, uint64_t which) {
  return from[which % from.size()];
}

// --- Drawing ---

/// `awaited`: its end is waited for, so that a pass that begins in it has ended by the time gradients are compared.
std::shared_ptr<const Script> draw_script(Random& random, int workers, int depth, bool awaited = true) {
  auto script = std::make_shared<Script>();
  const auto steps = 1 + random.below(depth == 0 ? 4 : 9);
  for (uint64_t i = 0; i < steps; i++) {
    using Kind = Step::Kind;
    Step step;
    step.which = random.below(8);
    step.left = random.below(100);
    step.right = random.below(100);
    const auto kind = random.below(depth == 0 ? 10 : 20);
    if (kind < 5) {
      step.kind = Kind::Operate;
    } else if (kind < 8) {
      step.kind = Kind::Parameter;
    } else if (kind == 8) {
      step.kind = random.chance(0.5) ? Kind::Detach : Kind::NoGrad;
    } else if (kind == 9) {
      step.kind = awaited && random.chance(0.3) ? Kind::Backward : Kind::Fetch;
    } else {
      constexpr Kind calls[] = {Kind::Call,  Kind::Call,   Kind::Call,   Kind::Start, Kind::Start,
                                Kind::Await, Kind::Silent, Kind::Remote, Kind::Fetch, Kind::Fetch};
      step.kind = calls[kind - 10];
      step.to = static_cast<int>(random.below(static_cast<uint64_t>(workers)));
      step.lend = random.chance(0.3);
      for (uint64_t n = random.below(4); n > 0; n--) step.arguments.push_back(random.below(100));
      step.script =
          draw_script(random, workers, depth - 1, awaited && step.kind != Kind::Start && step.kind != Kind::Remote);
    }
    script->steps.push_back(std::move(step));
  }
  for (uint64_t n = 1 + random.below(3); n > 0; n--) script->results.push_back(random.below(100));
  return script;
}

// --- Running ---

/// Runs scripts; what is near and what is far differs only in how calls are made.
template <class Place>
class Runner {
 public:
  Runner(Place place, Tensors tensors, std::vector<typename Place::Ref> refs)
      : place_(place), tensors_(std::move(tensors)), refs_(std::move(refs)) {
    tensors_.push_back(place_.parameter(0));
  }

  Tensors run(const Script& script) {
    for (const auto& each : script.steps) step(each);
    Tensors results;
    for (const auto which : script.results) results.push_back(pick(tensors_, which));
    return results;
  }

 private:
  void step(const Step& step) {
    using Kind = Step::Kind;
    const Tensor& left = pick(tensors_, step.left);
    switch (step.kind) {
      case Kind::Operate:
        return tensors_.push_back(operate(step.which, left, pick(tensors_, step.right)));
      case Kind::Parameter:
        return tensors_.push_back(place_.parameter(step.which % parameters_each));
      case Kind::Detach:
        return tensors_.push_back(left.detach() + 1);
      case Kind::NoGrad: {
        const c10::NoGradGuard no_grad;
        return tensors_.push_back(operate(step.which, left, pick(tensors_, step.right)));
      }
      case Kind::Call:
        return append(place_.call(step, arguments(step), lent(step)));
      case Kind::Silent: {
        const c10::NoGradGuard no_grad;
        return append(place_.call(step, arguments(step), lent(step)));
      }
      case Kind::Start:
        return started_.push_back(place_.start(step, arguments(step), lent(step)));
      case Kind::Await:
        for (auto& one : std::exchange(started_, {})) append(place_.finish(one));
        return;
      case Kind::Remote:
        return refs_.push_back(place_.remote(step, arguments(step), lent(step)));
      case Kind::Fetch:
        if (!refs_.empty()) tensors_.push_back(place_.fetch(pick(refs_, step.left)));
        return;
      case Kind::Backward:
        if (const auto root = left.sum(); root.requires_grad()) place_.backward(root);
        return;
    }
  }

  Tensors arguments(const Step& step) const {
    Tensors arguments;
    for (const auto which : step.arguments) arguments.push_back(pick(tensors_, which));
    return arguments;
  }
  std::vector<typename Place::Ref> lent(const Step& step) const {
    if (!step.lend || refs_.empty()) return {};
    return {pick(refs_, step.left)};
  }
  void append(const Tensors& more) { tensors_.insert(tensors_.end(), more.begin(), more.end()); }

  Place place_;
  Tensors tensors_;
  std::vector<typename Place::Ref> refs_;
  std::vector<typename Place::Started> started_;
};

/// All workers in one process: a call is a function call, whose arguments and results are copies.
struct Near {
  using Ref = Tensor;
  using Started = Tensors;

  const Parameters* parameters;
  int self;

  static Tensors copies(Tensors tensors) {
    for (auto& tensor : tensors) tensor = tensor.clone();
    return tensors;
  }
  Tensor parameter(uint64_t which) const { return (*parameters)[self][which]; }
  Tensors call(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return copies(Runner<Near>({parameters, step.to}, copies(arguments), refs).run(*step.script));
  }
  Started start(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return call(step, arguments, refs);
  }
  Tensors finish(const Started& started) const { return started; }
  Ref remote(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return Runner<Near>({parameters, step.to}, copies(arguments), refs).run(*step.script).front();
  }
  Tensor fetch(const Ref& ref) const { return ref.clone(); }
  void backward(const Tensor& root) const { torch::autograd::backward({root}, {}, true); }
};

using FarRef = RRef<Tensor>;
Tensors run_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs);
Tensor make_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs);

/// Scripts live as long as the test, and all workers in one process: a number finds them.
uint64_t number_of(const Step& step) { return reinterpret_cast<uint64_t>(step.script.get()); }

struct Far {
  using Ref = FarRef;
  using Started = Future<Tensors>;

  Worker* worker;

  Tensor parameter(uint64_t which) const { return (*far_parameters)[worker->rank()][which]; }
  Tensors call(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return worker->rpc_sync<run_here>(step.to, number_of(step), arguments, refs);
  }
  Started start(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return worker->rpc_async<run_here>(step.to, number_of(step), arguments, refs);
  }
  Tensors finish(const Started& started) const { return started.wait(); }
  Ref remote(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    return worker->remote<make_here>(step.to, number_of(step), arguments, refs);
  }
  Tensor fetch(const Ref& ref) const { return ref.to_here(); }
  void backward(const Tensor& root) const {
    farad::backward(*worker, current_context_id(), {root}, {.retain_graph = true});
  }
};

Tensors run_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs) {
  return Runner<Far>({&Worker::current()}, std::move(arguments), std::move(refs))
      .run(*reinterpret_cast<const Script*>(script));
}

Tensor make_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs) {
  return run_here(script, std::move(arguments), std::move(refs)).front();
}

}  // namespace

const Parameters* far_parameters = nullptr;

Model Model::draw(Random& random, int workers) { return {workers, draw_script(random, workers, 3)}; }

Parameters draw_parameters(Random& random, int workers) {
  Parameters parameters(static_cast<size_t>(workers));
  for (auto& each : parameters) {
    for (int i = 0; i < parameters_each; i++) {
      auto leaf = at::empty({2, 2}, at::kDouble);
      for (int64_t j = 0; j < 4; j++) leaf.view(-1)[j] = 0.25 + static_cast<double>(random.below(1000)) / 1000;
      each.push_back(leaf.requires_grad_());
    }
  }
  return parameters;
}

Tensor operate(uint64_t which, const Tensor& left, const Tensor& right) {
  switch (which % 8) {
    case 0:
      return left + right;
    case 1:
      return left * right;
    case 2:
      return left.sin();
    case 3:
      return left.matmul(right).tanh();
    case 4:
      return left + right.sum(0);  // broadcast
    case 5: {
      const auto halves = left.chunk(2, 0);  // Of several outputs, one may stay unused.
      return halves[0].expand({2, 2}) * right;
    }
    case 6: {
      auto changed = left.clone();
      changed.mul_(0.5).add_(right);
      return changed;
    }
    default:
      return left.t() - right.slice(0, 0, 1);
  }
}

std::vector<Tensor> run_near(const Model& model, const Parameters& parameters, int root) {
  return Runner<Near>({&parameters, root}, {}, {}).run(*model.root);
}

std::vector<Tensor> run_far(const Model& model) { return Runner<Far>({&Worker::current()}, {}, {}).run(*model.root); }

}  // namespace farad::test
