#pragma once

#include <farad/shared.h>

#include <functional>
#include <memory>
#include <vector>

#include "audit/board.h"
#include "audit/copy.h"

namespace farad::audit {

using Gradients = std::vector<at::Tensor>;

/// How a worker's gradients come to the parameters: by the model, or by one of the defects that lie there. One thread.
class Applier {
 public:
  virtual ~Applier() = default;
  virtual void apply(const Gradients& gradients, int64_t samples) = 0;
};

/// What the optimizer that is told apart from the model's own consumed; as shared::Observer.
using Observed = std::function<void(const shared::Update&, const Gradients&)>;

/// The options that the model is to be created with: those defects bring an optimizer of their own.
farad::detail::OptimizerSettings settings_for(const Training& training, const Options& options);
/// `bound` is bound to the model. The observer is told by the model itself unless the defect goes around it.
std::unique_ptr<Applier> make_applier(int worker, const Training& training, const Options& options,
                                      shared::Model& model, const Gradients& bound, Board& board, Observed observed);
/// Whether what the model tells its observer is what was applied.
bool model_observes(const Options& options);

}  // namespace farad::audit
