#pragma once

#include "common/program.h"

namespace farad::bench {

// PyTorch's side has the same numbers, in torch_training.py.
inline constexpr int64_t step_width = 256, step_batch = 32;
inline constexpr double step_rate = 1e-3;

/// Steps of a Linear that lives at the other worker; writes Samples of "all" and of its parts as JSON to standard
/// output: rendezvous, transport.
void step_client(const Words&);
/// Steps of the same Linear in one process, with libtorch alone.
void step_alone(const Words&);
/// Steps of the same Linear at the other process with as little between them as can be: where they meet.
void step_floor(const Words&);
void step_floor_peer(const Words&);

/// Holds a weight that the others train, each by itself, and writes their steps a second: rendezvous, transport, how
/// many there are of us.
void parameter_server(const Words&);

/// Saves and loads what the other worker holds, beside the speed of the disk: rendezvous, transport, a directory, MiB.
void checkpoint_client(const Words&);

/// Trains the demo's model as a pipeline, by each schedule, and in one process: rendezvous, transport.
inline constexpr int pipeline_workers = 3;
void pipeline_client(const Words&);

/// Joins and closes; what it does is asked of it: rendezvous, transport, how many there are of us, its rank.
void member(const Words&);

}  // namespace farad::bench
