#pragma once

#include "common/program.h"

namespace farad::bench {

/// Makes the calls and writes JSON to standard output: rendezvous, transport, how many calls memory is watched over.
void call_client(const Words&);
/// Small calls only, for callgrind: rendezvous, transport, how many.
void count_client(const Words&);
/// Joins and closes, as servers do: rendezvous, transport.
void call_server(const Words&);

}  // namespace farad::bench
