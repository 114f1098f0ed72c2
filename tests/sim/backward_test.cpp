// Random models over simulated workers, with the gradients of one process: the same values, defined for the same
// leaves. Then an end, and nothing is left: also when workers crash and connections break.

#include <ATen/ATen.h>
#include <farad/autograd.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "sim/model.h"
#include "sim/simulation.h"
#include "suites/seeds.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using net::sim::Death;
using Tensors = std::vector<Tensor>;

/// Of each parameter, whether it has a gradient, and which.
using Collected = std::vector<std::pair<bool, Tensor>>;

Collected collect(int64_t context) {
  auto& worker = Worker::current();
  const auto all = gradients(worker, context);
  Collected collected;
  for (const auto& leaf : (*far_parameters)[worker.rank()]) {
    const Tensor gradient = all.find(leaf);
    collected.emplace_back(gradient.defined(), gradient.defined() ? gradient.detach() : at::zeros({}));
  }
  return collected;
}

/// What this worker has in hand, but for the call that asks.
std::string left_here() {
  auto debug = Worker::current().debug();
  debug.made.clear();
  debug.running.clear();
  std::ostringstream text;
  if (!debug.empty()) text << Worker::current().self().name << ":\n" << debug;
  return text.str();
}

/// What is left at all workers that are alive.
std::string left_everywhere(const Simulation& simulation, Worker& worker) {
  std::string all;
  for (int rank = 0; rank < worker.size(); rank++) {
    if (!simulation.alive(rank)) continue;
    try {
      all += worker.rpc_sync<left_here>(rank);
    } catch (const PeerLost& error) {
      all += error.what_without_backtrace();
    }
  }
  return all;
}

/// What is done with the tensors that a model gives. Drawn before it runs, and the same near and far.
struct Ending {
  enum class Kind { Plain, Explicit, Twice, Inputs, Fast, SecondOrder };
  Kind kind = Kind::Plain;
  Mode mode = Mode::Smart;  ///< of SecondOrder; FAST gives way where a call is not used
  std::vector<double> factors;

  static Ending draw(net::sim::Random& random, Flavour flavour) {
    Ending ending;
    ending.kind = static_cast<Kind>(random.below(6));
    if (flavour.checkpoints && ending.kind == Kind::SecondOrder) ending.kind = Kind::Plain;
    if (random.chance(0.5)) ending.mode = Mode::Fast;
    for (int i = 0; i < 3; i++) ending.factors.push_back(0.5 + static_cast<double>(random.below(100)) / 50);
    return ending;
  }
  Tensor loss(const Tensors& tensors) const {
    Tensor loss = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < tensors.size(); i++) loss = loss + (tensors[i] * factors[i]).sum();
    return loss;
  }
};

Tensor penalty(const Tensors& gradients) {
  Tensor sum = at::zeros({}, at::kDouble);
  for (const auto& gradient : gradients) {
    if (gradient.defined()) sum = sum + (gradient * gradient).sum();
  }
  return sum;
}

void end_near(const Ending& ending, const Tensors& tensors, const Tensors& leaves) {
  using Kind = Ending::Kind;
  const Tensor loss = ending.loss(tensors);
  if (!loss.requires_grad()) return;
  switch (ending.kind) {
    case Kind::Plain:
    case Kind::Fast:
      return torch::autograd::backward({loss});
    case Kind::Explicit:
      return torch::autograd::backward({loss}, {at::full({}, 3.0, at::kDouble)});
    case Kind::Twice:
      torch::autograd::backward({loss}, {}, true);
      return torch::autograd::backward({loss});
    case Kind::Inputs:
      return torch::autograd::backward({loss}, {}, false, false, leaves);
    case Kind::SecondOrder: {
      const auto sum = penalty(torch::autograd::grad({loss}, leaves, {}, true, true, true));
      if (sum.requires_grad()) torch::autograd::backward({sum});
      return;
    }
  }
}

/// What `pass` does in that mode; in SMART if a call is not used. The gradients of an earlier pass never have to be.
template <class Pass>
auto in_mode(Mode mode, const Pass& pass) {
  if (mode == Mode::Smart) return pass(mode);
  try {
    return pass(Mode::Fast);
  } catch (const Aborted& error) {
    const std::string what = error.what();
    if (what.find("needs every call to be used") == std::string::npos) throw;
    EXPECT_EQ(what.find("a gradient"), std::string::npos) << what;
    return pass(Mode::Smart);
  }
}

void end_far(const Ending& ending, const Tensors& tensors, const Tensors& leaves, Context& context) {
  using Kind = Ending::Kind;
  const Tensor loss = ending.loss(tensors);
  if (!loss.requires_grad()) return;
  switch (ending.kind) {
    case Kind::Plain:
      return context.backward({loss});
    case Kind::Explicit:
      return context.backward({loss}, {.grad_tensors = {at::full({}, 3.0, at::kDouble)}});
    case Kind::Twice:
      context.backward({loss}, {.retain_graph = true});
      return context.backward({loss}, {.deterministic = true});
    case Kind::Inputs:
      return context.backward({loss}, {.inputs = leaves});
    case Kind::Fast:
      return in_mode(Mode::Fast, [&](Mode mode) { context.backward({loss}, {.retain_graph = true, .mode = mode}); });
    case Kind::SecondOrder: {
      const auto first = [&](Mode mode) { return grad(context, {loss}, leaves, {.create_graph = true, .mode = mode}); };
      const auto sum = penalty(in_mode(ending.mode, first));
      if (!sum.requires_grad()) return;
      return in_mode(ending.mode, [&](Mode mode) { context.backward({sum}, {.retain_graph = true, .mode = mode}); });
    }
  }
}

void compare(int rank, const Collected& far, const Tensors& near) {
  ASSERT_EQ(far.size(), near.size());
  for (size_t i = 0; i < near.size(); i++) {
    const Tensor& expected = near[i].grad();
    ASSERT_EQ(far[i].first, expected.defined()) << "parameter " << i << " of worker" << rank;
    if (!expected.defined()) continue;
    EXPECT_TRUE(at::allclose(far[i].second, expected, 1e-9, 1e-12))
        << "parameter " << i << " of worker" << rank << ":\n"
        << far[i].second << "\nnot\n"
        << expected;
  }
}

/// A random program, what it ends with, and its gradients in one process.
struct Trial {
  /// `maker` is who runs it, if there are so many workers.
  Trial(uint64_t seed, int most_workers, int maker = 0, Flavour flavour = {})
      : Trial(net::sim::Random(seed * 2 + 1), most_workers, maker, flavour) {}

  const int workers;
  const int maker;
  const Model model;
  const Ending ending;
  const Parameters near;
  const Parameters far;

  /// The same over workers, in a context that is made and ended by the current one. Throws what becomes of it.
  /// `settle`: before its last pass, which retains no graph.
  void run(Worker& worker, const std::function<void()>& settle = {}) const {
    Context context(worker);
    const auto tensors = run_far(model);
    if (settle) settle();
    end_far(ending, tensors, far[maker], context);
    for (int rank = 0; rank < workers; rank++) {
      compare(rank, worker.rpc_sync<collect>(rank, context.id()), near[rank]);
    }
  }

 private:
  Trial(net::sim::Random draw, int most_workers, int wanted_maker, Flavour flavour)
      : workers(1 + static_cast<int>(draw.below(most_workers))),
        maker(std::min(wanted_maker, workers - 1)),
        model(Model::draw(draw, workers, flavour)),
        ending(Ending::draw(draw, flavour)),
        near(draw_parameters(draw, workers)),
        far(copies(near)) {
    end_near(ending, run_near(model, near, maker), near[maker]);
    far_parameters = &far;
    far_scripts = 0;
  }
  static Parameters copies(const Parameters& parameters) {
    Parameters all;
    for (const auto& each : parameters) {
      auto& copies = all.emplace_back();
      for (const auto& leaf : each) copies.push_back(leaf.detach().clone().requires_grad_());
    }
    return all;
  }
};

void expect_nothing_left(Simulation& simulation, Worker& worker) {
  EXPECT_TRUE(simulation.eventually([&] { return left_everywhere(simulation, worker).empty(); }))
      << "something is left at " << left_everywhere(simulation, worker);
}

TEST(RandomModels, HaveTheGradientsOfOneProcess) {
  for_each_seed(1500, [](uint64_t seed) {
    const Trial trial(seed, 8);
    Simulation simulation(seed, {.size = trial.workers});
    simulation.run([&](Worker& worker) {
      if (worker.rank() != 0) return;
      trial.run(worker);
      expect_nothing_left(simulation, worker);
    });
  });
}

/// Passes of all kinds that begin wherever calls happen to come, beside each other and the forward program.
TEST(RandomModels, HaveTheGradientsOfOneProcessWherePassesOverlap) {
  for_each_seed(600, [](uint64_t seed) {
    const Trial trial(seed, 8, 0, {.overlaps = true});
    Simulation simulation(seed, {.size = trial.workers});
    simulation.run([&](Worker& worker) {
      if (worker.rank() != 0) return;
      trial.run(worker, [&] {
        EXPECT_TRUE(simulation.eventually([] { return far_scripts == 0; })) << left_everywhere(simulation, worker);
      });
      expect_nothing_left(simulation, worker);
    });
  });
}

TEST(RandomModels, HaveTheGradientsOfOneProcessWhereFunctionsAreComputedAgain) {
  for_each_seed(600, [](uint64_t seed) {
    const Trial trial(seed, 8, 0, {.overlaps = seed % 2 == 0, .checkpoints = true});
    Simulation simulation(seed, {.size = trial.workers});
    simulation.run([&](Worker& worker) {
      if (worker.rank() != 0) return;
      trial.run(worker, [&] {
        EXPECT_TRUE(simulation.eventually([] { return far_scripts == 0; })) << left_everywhere(simulation, worker);
      });
      expect_nothing_left(simulation, worker);
    });
  });
}

Tensor begin_pass(Tensor x) {
  backward(Worker::current(), current_context_id(), {(x * x).sum()});
  return x.detach();
}
int answer() { return 1; }

/// Its first pass there is one that the others have seen end, but for its life.
TEST(WorkersThatComeBack, BeginPassesInAContextThatKnewThemBefore) {
  for_each_seed(20, [](uint64_t seed) {
    Simulation simulation(seed, {.size = 3});
    int ended = 0;
    simulation.run([&](Worker& worker) {
      if (worker.rank() != 0) {
        EXPECT_TRUE(simulation.eventually([&] { return ended > 0; }));
        return;
      }
      const Tensor a = at::full({2}, 3.0, at::kDouble).requires_grad_();
      {
        Context context(worker);
        worker.rpc_sync<begin_pass>(1, a);
        EXPECT_TRUE(at::equal(context.gradient(a), a * 2)) << context.gradient(a);
        simulation.crash(1, seed % 2 ? Death::OfProcess : Death::OfMachine);
        simulation.restart(1);
        const auto is_back = [&] {
          try {
            const c10::NoGradGuard unrecorded;
            return worker.rpc_sync<answer>(1) == 1;
          } catch (const Error&) {
            return false;
          }
        };
        EXPECT_TRUE(simulation.eventually(is_back));
        worker.rpc_sync<begin_pass>(1, a);
        EXPECT_TRUE(at::equal(context.gradient(a), a * 4)) << context.gradient(a);
      }
      expect_nothing_left(simulation, worker);
      ended = 1;
    });
  });
}

/// Something that befalls workers: one crashes or stops, two lose each other. Never a crash of worker 0, which watches.
/// False if it befalls nobody.
bool befall(Simulation& simulation) {
  auto& random = simulation.random();
  auto& world = simulation.world();
  const auto any = [&] { return static_cast<int>(random.below(simulation.size())); };
  const auto rank = [](int n) { return base::Rank(static_cast<uint16_t>(n)); };
  const int one = any(), other = any();
  switch (random.below(5)) {
    case 0:
      if (one == 0 || !simulation.alive(one)) return false;
      simulation.crash(one, random.chance(0.7) ? Death::OfProcess : Death::OfMachine);
      return true;
    case 1:
      if (!simulation.alive(one) || simulation.size() == 1) return false;
      world.stop(rank(one));
      world.after(random.between(1ms, 8s), [&world, who = rank(one)] { world.resume(who); });
      return true;
    case 2:
      if (one == other) return false;
      world.partition({rank(one)}, {rank(other)}, random.between(1ms, 8s));
      return true;
    default:
      if (one == other) return false;
      world.break_connection(rank(one), rank(other));
      return true;
  }
}

/// One that says what the world did, and to whom.
bool is_named(const Error& error) {
  const bool of_a_kind = dynamic_cast<const Aborted*>(&error) || dynamic_cast<const PeerLost*>(&error) ||
                         dynamic_cast<const RemoteError*>(&error) || dynamic_cast<const Timeout*>(&error);
  return of_a_kind && std::string(error.what_without_backtrace()).find("worker") != std::string::npos;
}

/// Worker 0 watches to the end; others may come back. The context is made there or, so that its maker may crash, by
/// worker 1. With seed 1842 two workers lose each other, meet again, and have a gradient for what was sent before.
TEST(RandomModels, EndWithThemOrWithANamedErrorInTrouble) {
  int in_trouble = 0, succeeded = 0;
  for_each_seed(1900, [&](uint64_t seed) {
    const Trial trial(seed, 8, seed % 3 == 0 ? 1 : 0);
    net::sim::Faults faults;
    faults.breaks = seed % 4 == 0 ? 0.01 : 0;
    faults.stalls = seed % 5 == 0 ? 0.05 : 0;
    Simulation simulation(seed, {.size = trial.workers, .faults = faults});
    int joined = 0;
    bool over = false, troubled = faults.breaks + faults.stalls > 0, failed = false;
    const auto program = [&](Worker& worker) {
      joined++;
      if (worker.rank() == trial.maker) {
        try {
          trial.run(worker);
        } catch (const Error& error) {
          EXPECT_TRUE(troubled) << "nothing befell anybody: " << error.what();
          EXPECT_TRUE(is_named(error)) << error.what();
          failed = true;
        }
        over = true;
      }
      if (worker.rank() != 0) return;
      EXPECT_TRUE(simulation.eventually([&] { return over || !simulation.alive(trial.maker); })) << "it does not end";
      expect_nothing_left(simulation, worker);
    };
    simulation.run(program, [&] {
      while (joined < trial.workers) simulation.pass(100us);  // Before that, a crash is none of ours.
      for (auto troubles = simulation.random().below(4); troubles > 0; troubles--) {
        simulation.pass(simulation.random().between(0us, 10ms));
        const bool before = troubled, in_time = !over;
        troubled = true;  // Already now: others may see what it does before it is done.
        troubled = before || (befall(simulation) && in_time);
        if (seed % 7 != 3) continue;
        const int down = static_cast<int>(simulation.random().below(simulation.size()));
        if (!simulation.alive(down) && !over) simulation.restart(down);
      }
    });
    if (!troubled) return;
    in_trouble++;
    succeeded += over && !failed;
  });
  RecordProperty("in_trouble", in_trouble);
  RecordProperty("succeeded", succeeded);
  if (in_trouble < 100) return;  // Too few to tell.
  EXPECT_GE(succeeded * 2, in_trouble) << "a pass that always fails is always named";
}

}  // namespace
}  // namespace farad::test
