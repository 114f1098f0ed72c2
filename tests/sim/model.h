#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "net/sim/random.h"

namespace farad::test {

struct Script;

/// One step of a random model. Numbers that name a tensor or a reference count modulo as many as there are.
struct Step {
  enum class Kind {
    Operate,    ///< `which` operation, on tensors `left` and `right`
    Parameter,  ///< of the worker that runs it
    Detach,
    NoGrad,  ///< an operation whose result needs no gradient
    Call,    ///< `script` at worker `to`, given `arguments`, and reference `left` if `lend`
    Start,   ///< the same without waiting; the results come with the next Await, or never
    Await,
    Silent,    ///< a call under NoGradGuard
    Remote,    ///< the same as a call; the first result stays there, as a new reference
    Fetch,     ///< reference `left`
    Backward,  ///< a pass that begins here, at tensor `left`; of `which` kind
    Again,     ///< runs `script` here as a checkpoint, given `arguments`
  };
  Kind kind = Kind::Operate;
  uint64_t which = 0, left = 0, right = 0;
  int to = 0;
  bool lend = false;
  std::vector<uint64_t> arguments = {};
  std::shared_ptr<const Script> script = {};
};

/// What one call does: steps on the tensors it was given, and which of those it then has it gives back.
struct Script {
  std::vector<Step> steps;
  std::vector<uint64_t> results;
};

/// What a model may have that not every test can do with.
struct Flavour {
  bool overlaps = false;     ///< passes that nobody waits for, of every kind: see far_scripts
  bool checkpoints = false;  ///< then none of its passes may create a graph
};

/// A model over several workers that runs in one process as well, to be compared.
struct Model {
  int workers = 1;
  std::shared_ptr<const Script> root;

  static Model draw(net::sim::Random& random, int workers, Flavour flavour = {});
};

/// Each worker's leaves.
using Parameters = std::vector<std::vector<at::Tensor>>;
constexpr int parameters_each = 2;
Parameters draw_parameters(net::sim::Random& random, int workers);

/// `which` of a few operations, with different kinds of backward: broadcast, several outputs, in place, products.
at::Tensor operate(uint64_t which, const at::Tensor& left, const at::Tensor& right);

/// The tensors that the root's script gives if worker `root` runs it, in one process. Passes that begin on the way are
/// run by torch::autograd::backward.
std::vector<at::Tensor> run_near(const Model& model, const Parameters& parameters, int root = 0);

/// The same over workers: to be called at the root inside a Context. Remote functions find the parameters in `far`.
std::vector<at::Tensor> run_far(const Model& model);
/// For the time of a test: the model's leaves at each worker.
extern const Parameters* far_parameters;
/// Scripts that were sent somewhere and have not ended.
extern int far_scripts;

}  // namespace farad::test
