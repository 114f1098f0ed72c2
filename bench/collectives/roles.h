#pragma once

#include "common/program.h"

namespace farad::bench {

/// What is measured. PyTorch's side has the same names and counts, in torch_collectives.py.
struct Case {
  const char* name;
  size_t bytes;
  int count;
  bool gather = false;  ///< all_gather and its backward, instead of all_reduce
};
constexpr size_t largest_bytes = size_t{128} << 20;
constexpr Case cases[] = {
    {"all_reduce 16 B", 16, 3000},
    {"all_reduce 1 MiB", 1 << 20, 200},
    {"all_reduce 128 MiB", largest_bytes, 8},
    {"all_gather 1 MiB, forward and backward", 1 << 20, 200, true},
};

/// Takes part in all cases; rank 0 writes a Sample for each as JSON, and under "copy" one of what all of them need to
/// copy the largest tensor once, at the same time: rendezvous, transport, how many there are of us, its rank.
void take_part(const Words&);

/// The same for one all_reduce of so many bytes, so many times: rendezvous, transport, how many, rank, bytes, count.
void reduce_only(const Words&);

}  // namespace farad::bench
