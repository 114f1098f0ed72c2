#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace farad::rpc {

/// How well arguments fit a schema; the least is the best. An int for a Scalar is exact, for a float it is not.
/// Positions that are for keywords come last, so that sum(x, 1) is about dimension 1 and not about a dtype that is
/// numbered so.
enum class Fit : uint8_t { Exact, Converted, InKeywordPlace, ConvertedInKeywordPlace, None };

/// What an operator is called with, if it is: the arguments as its schema wants them, and defaults for those not given.
///
/// Converted are an int to a float, a number to a complex one, a bool to a Scalar, a tensor of one number that needs no
/// gradient to that number, a tuple to a list, one number to a list of fixed length, a str to a Device.
struct Match {
  Fit fit = Fit::None;
  torch::jit::Stack stack;
};
Match match(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

/// Why nothing matched.
std::string mismatch(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

/// Whether all it takes and gives can travel, or may be left out.
bool can_travel(const c10::FunctionSchema& schema);

}  // namespace farad::rpc
