#pragma once

#include <farad/audit.h>

#include "acer/batch.h"

namespace farad::acer {

/// A batch as the audit handles it: tensors whose rows are steps or windows, so that batches can be concatenated.
struct BatchPart {
  enum : size_t { observations, choices, rewards, behaviours, windows, afters, amounts, noise };
};
/// What is known of a window, in the columns of its row.
struct WindowColumn {
  enum : int64_t { length, terminated, on_policy, count };
};

/// The last two parts are there for amounts only. `on_policy`: all its windows were acted in by the policy that learns
/// from them.
audit::Batch to_tensors(const Batch& batch, bool on_policy);
Batch from_tensors(const audit::Batch& tensors);

/// The windows of all of them, in that order.
audit::Batch joined(const std::vector<audit::Batch>& batches);

}  // namespace farad::acer
