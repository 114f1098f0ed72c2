#pragma once

#include <string_view>
#include <tuple>

/// Lets a struct travel as an argument or a result, by naming the fields that make up its value:
///
///     struct Transition {
///       at::Tensor state;
///       int64_t action = 0;
///       std::optional<double> reward;
///       FARAD_FIELDS(state, action, reward)
///     };
///
/// The struct must have a default constructor, and each field must be of a type that travels. Fields are sent in the
/// order in which they are named here; both sides must name the same ones.
#define FARAD_FIELDS(...)                                     \
  auto farad_fields() { return std::tie(__VA_ARGS__); }       \
  auto farad_fields() const { return std::tie(__VA_ARGS__); } \
  static constexpr std::string_view farad_field_names() { return #__VA_ARGS__; }
