#pragma once

#include <farad/collectives.h>

#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/session.h"
#include "worker_core.h"

namespace farad::test {

constexpr Op every_reduction[] = {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product};

/// A way to all_reduce, whatever the size.
struct AlgorithmChoice {
  const char* name;
  collectives::Algorithms algorithms;
};
constexpr size_t always = std::numeric_limits<size_t>::max();
constexpr collectives::Algorithms by_doubling{.slices_from = always, .doubling_members = 2, .doubling_below = always};
constexpr AlgorithmChoice algorithm_choices[] = {
    {"whole", {.slices_from = always}},
    {"doubling", by_doubling},
    {"slices in one step", {.slices_from = 0}},
    {"slices in many steps", {.slices_from = 0, .slice_bytes = 64}},
    {"slices of one element", {.slices_from = 0, .slice_bytes = 1}},
    {"slices past the cache", {.slices_from = 0, .slice_bytes = 64, .stream_from = 0}},
    {"a ring", {.slices_from = 0, .large = collectives::Algorithms::Large::Ring}},
    {"a ring of many pieces", {.slices_from = 0, .slice_bytes = 64, .large = collectives::Algorithms::Large::Ring}},
};

/// Of a group of all workers.
inline std::shared_ptr<collectives::Session> session_of(Worker& worker, const collectives::Algorithms& algorithms,
                                                        std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  std::vector<uint16_t> ranks;
  for (int rank = 0; rank < worker.size(); ++rank) ranks.push_back(static_cast<uint16_t>(rank));
  return detail::WorkerCore::of(worker).groups().make(std::move(ranks), worker.rank(), timeout, algorithms);
}

}  // namespace farad::test
