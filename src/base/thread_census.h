#pragma once

namespace farad::base {

/// How many threads this process has that libraries did not start when they were loaded, before main(). OpenBLAS does
/// that, and knows how to survive a fork; of others a fork would leave half-done work behind. This one not counted.
int threads_started();

}  // namespace farad::base
