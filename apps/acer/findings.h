#pragma once

#include "acer/direction.h"
#include "acer/module.h"
#include "acer/rules.h"

namespace farad::acer {

/// What a batch was like, as sums over its steps unless it says otherwise.
struct Findings {
  double steps = 0;
  double policy_loss = 0, correction_loss = 0, critic_loss = 0;
  double entropy = 0, divergence = 0;
  double bounded = 0, effect = 0;  ///< samples that the trust region changed, and by how much
  double ratio = 0, largest_ratio = 0, ratio_above_1 = 0, ratio_above_c = 0;
  double target = 0, target_squared = 0, error = 0, error_squared = 0;  ///< of targets, and of the critic
  double gradient_norm = 0, clipped_norm = 0;                           ///< of the whole batch

  /// Adds one step. `error`: of the critic.
  void add(const Direction& direction, double ratio_of_step, double target_of_step, double error_of_step,
           const Rules& rules);
};

/// Scales all gradients so that their length together is at most `largest`, unless that is 0. Gives what it was.
double clip_gradients(const Module& module, double largest);

/// If the gradients are together longer than the rules allow they are scaled down. Notes both lengths.
void clip_gradients(const Module& module, const Rules& rules, Findings& found);

/// Forgets the gradients of a module, sets them to those that follow from the outputs' ones by a backward pass, and
/// clips them.
void backward(Module& module, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
              const Rules& rules, Findings& found);

}  // namespace farad::acer
