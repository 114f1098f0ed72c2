#pragma once

#include <farad/fields.h>

#include <cstdint>
#include <string>
#include <vector>

namespace farad::collectives {

enum class Operation : uint8_t {
  AllReduce,
  AllGather,
  AllGatherCat,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  Send,
  Recv,
  Shift,
  Barrier,
};

/// What a member came with: the operation, and what of it has to agree with the others'.
struct Signature {
  Operation operation = Operation::Barrier;
  uint8_t op = 0;                            ///< farad::Op, of what reduces
  int64_t number = 0;                        ///< root, peer, dimension or shift
  uint8_t dtype = 0;                         ///< as on the wire; 0 = it gave no tensor
  std::vector<std::vector<int64_t>> shapes;  ///< of what it gave
  bool backward = false;                     ///< of an operation that looked like this
  FARAD_FIELDS(operation, op, number, dtype, shapes, backward)
};

/// `all_reduce(Max, float32 [3, 4])`, as messages say it.
std::string to_text(const Signature& signature);

/// Whether two members that came with these have called the same thing.
bool agree(const Signature& one, const Signature& other);

}  // namespace farad::collectives
