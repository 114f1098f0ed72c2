#pragma once

#include <cstddef>

namespace farad::base {

/// memcpy for what is so large that it will have left the cache before anybody reads it: writes past the cache, so that
/// `to` need not be read from memory first, and what is in the cache stays there. Any thread.
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace farad::base
