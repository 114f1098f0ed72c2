#pragma once

#include "common/program.h"

namespace farad::bench {

/// Runs passes over the other worker and writes JSON to standard output: rendezvous, transport.
void pass_client(const Words&);
/// Joins and closes, as servers do: rendezvous, transport.
void pass_server(const Words&);

/// The same passes with as little between two processes as can be: where they meet.
void pass_floor(const Words&);
void pass_floor_peer(const Words&);

/// One pass over workers that are simulated, in this process; writes its time and its messages as JSON to standard
/// output: "chain", "tree" or "star", how many workers.
void simulated_pass(const Words&);

/// A graph of one process, for callgrind: by the engine alone ("farad"), by Context::backward on one worker ("context")
/// or by libtorch ("torch"); how many passes. Writes the number of nodes of a pass.
void walk_graph(const Words&);

}  // namespace farad::bench
