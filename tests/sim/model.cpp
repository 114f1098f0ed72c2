#include "sim/model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <farad/autograd.h>
#include <farad/error.h>
#include <farad/rref.h>
#include <farad/worker.h>
#include <gtest/gtest.h>
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

/// What may be in a script, because of what it is in.
struct Around {
  int depth = 0;
  bool awaited = true;  ///< its end is waited for, and with it that of a pass which begins in it
  bool again = false;   ///< it is run twice, and has to do the same both times
};

std::shared_ptr<const Script> draw_script(Random& random, int workers, Flavour flavour, Around around) {
  const int depth = around.depth;
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
      const bool may = !around.again && (around.awaited || flavour.overlaps);
      step.kind = may && random.chance(flavour.overlaps ? 0.6 : 0.3) ? Kind::Backward : Kind::Fetch;
      if (!flavour.overlaps || flavour.checkpoints) step.which = 0;
    } else {
      constexpr Kind calls[] = {Kind::Call,  Kind::Call,   Kind::Call,   Kind::Start, Kind::Start,
                                Kind::Await, Kind::Silent, Kind::Remote, Kind::Fetch, Kind::Fetch};
      step.kind = calls[kind - 10];
      step.to = static_cast<int>(random.below(static_cast<uint64_t>(workers)));
      if (flavour.checkpoints && kind % 3 == 0) step.kind = Kind::Again;
      step.lend = random.chance(0.3) && step.kind != Kind::Again;
      for (uint64_t n = random.below(4); n > 0; n--) step.arguments.push_back(random.below(100));
      const bool awaited = around.awaited && step.kind != Kind::Start && step.kind != Kind::Remote;
      const bool again = around.again || step.kind == Kind::Again;
      step.script = draw_script(random, workers, flavour, {depth - 1, awaited, again});
    }
    script->steps.push_back(std::move(step));
  }
  for (uint64_t n = 1 + random.below(3); n > 0; n--) script->results.push_back(random.below(100));
  return script;
}

// --- Running ---

bool creates_graph(uint64_t which) { return which % 2 == 1; }
bool is_fast(uint64_t which) { return which % 4 >= 2; }

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
        if (const auto root = left.sum(); root.requires_grad()) place_.backward(root, step.which);
        return;
      case Kind::Again:
        return append(place_.again(step, arguments(step)));
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
  void backward(const Tensor& root, uint64_t which) const {
    torch::autograd::backward({root}, {}, true, creates_graph(which));
  }
  Tensors again(const Step& step, const Tensors& arguments) const {
    return Runner<Near>({parameters, self}, arguments, {}).run(*step.script);
  }
};

using FarRef = RRef<Tensor>;
Tensors run_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs);
Tensors run_started(uint64_t script, Tensors arguments, std::vector<FarRef> refs);
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
    ++far_scripts;
    return worker->rpc_async<run_started>(step.to, number_of(step), arguments, refs);
  }
  Tensors finish(const Started& started) const { return started.wait(); }
  Ref remote(const Step& step, const Tensors& arguments, const std::vector<Ref>& refs) const {
    ++far_scripts;
    return worker->remote<make_here>(step.to, number_of(step), arguments, refs);
  }
  Tensor fetch(const Ref& ref) const { return ref.to_here(); }
  void backward(const Tensor& root, uint64_t which) const {
    BackwardOptions options{.retain_graph = true, .create_graph = creates_graph(which)};
    if (is_fast(which)) {
      options.mode = Mode::Fast;
      try {
        return farad::backward(*worker, current_context_id(), {root}, options);
      } catch (const Aborted& error) {
        const std::string what = error.what();
        if (what.find("needs every call to be used") == std::string::npos) throw;
        EXPECT_EQ(what.find("a gradient"), std::string::npos) << what;
      }
      options.mode = Mode::Smart;
    }
    farad::backward(*worker, current_context_id(), {root}, options);
  }
  Tensors again(const Step& step, const Tensors& arguments) const {
    return checkpoint([worker = worker, script = step.script](
                          const Tensors& given) { return Runner<Far>({worker}, given, {}).run(*script); },
                      arguments);
  }
};

Tensors run_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs) {
  return Runner<Far>({&Worker::current()}, std::move(arguments), std::move(refs))
      .run(*reinterpret_cast<const Script*>(script));
}

Tensors run_started(uint64_t script, Tensors arguments, std::vector<FarRef> refs) {
  const auto end = c10::make_scope_exit([] { --far_scripts; });
  return run_here(script, std::move(arguments), std::move(refs));
}

Tensor make_here(uint64_t script, Tensors arguments, std::vector<FarRef> refs) {
  return run_started(script, std::move(arguments), std::move(refs)).front();
}

}  // namespace

const Parameters* far_parameters = nullptr;
int far_scripts = 0;

Model Model::draw(Random& random, int workers, Flavour flavour) {
  return {workers, draw_script(random, workers, flavour, {.depth = 3})};
}

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
