#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/StringUtil.h>
#include <farad/error.h>

/// For misuse: throws what the rest of the arguments make, as text, unless the condition holds.
///
/// Not TORCH_CHECK: that throws a c10::Error, which slips through a `catch (const farad::Error&)`. libtorch's own is
/// left where we do libtorch's work, in the engine.
#define FARAD_CHECK(condition, ...)                                                \
  do {                                                                             \
    if (C10_UNLIKELY(!(condition))) throw ::farad::Error(::c10::str(__VA_ARGS__)); \
  } while (false)
