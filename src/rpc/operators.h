#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

#include "rpc/operator_rules.h"

namespace farad::rpc {

/// Runs an operator of libtorch, as its dispatcher knows it. `name` is "aten::add", or "aten::add.Tensor" to pick an
/// overload; otherwise the one that fits best is taken (but for those that write into an `out`), and of several the one
/// that was registered first. Gives None for no result and a tuple for several.
///
/// Throws detail::BadArguments if there is no such operator, `rules` forbid it or no overload takes the arguments; and
/// whatever the operator throws.
c10::IValue run_operator(const OperatorRules& rules, const std::string& name,
                         const std::vector<c10::IValue>& arguments);

}  // namespace farad::rpc
