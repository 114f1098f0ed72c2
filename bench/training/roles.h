#pragma once

#include "common/program.h"

namespace farad::bench {

/// Steps of a Linear that lives at the other worker; writes Samples of "all" and of its parts as JSON to standard
/// output: rendezvous, transport.
void step_client(const Words&);
/// Steps of the same Linear in one process, with libtorch alone.
void step_alone(const Words&);

/// Holds a weight that the others train, each by itself, and writes their steps a second: rendezvous, transport, how
/// many there are of us.
void parameter_server(const Words&);

/// Saves and loads what the other worker holds, beside the speed of the disk: rendezvous, transport, a directory, MiB.
void checkpoint_client(const Words&);

/// Joins and closes; what it does is asked of it: rendezvous, transport, how many there are of us, its rank.
void member(const Words&);

}  // namespace farad::bench
