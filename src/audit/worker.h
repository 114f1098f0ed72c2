#pragma once

#include <farad/audit.h>

#include <string>

#include "audit/board.h"

namespace farad::audit {

/// What the processes of one run have in common.
struct Setup {
  const Training& training;
  const Options& options;
  Board& board;
  std::string model;  ///< its name
};

/// How the model of a run is made, and joined; without an observer.
shared::Options model_options(const Setup& setup);

/// The life of the manager's process, if the policy has one.
void manage(const Setup& setup);

/// The life of one worker process: joins, trains for so many rounds as a program would that is written on farad, with
/// the defect that the options name, and writes down what it does.
void work(int worker, const Setup& setup);

/// The gradient that worker 0 applies after all is done: what comes of it depends on everything that the optimizer
/// remembers.
at::Tensor probe_gradient(int64_t elements, c10::ScalarType type);

}  // namespace farad::audit
