#pragma once

namespace farad::base {

/// What a thread is called beside which a process may fork: one that holds no lock and has nothing that others need,
/// but for memory of the C library, which minds forks itself. The broker of a model in shared memory is one.
inline constexpr char broker_thread[] = "farad-broker";

/// How many threads this process has that libraries did not start when they were loaded, before main(). OpenBLAS does
/// that, and knows how to survive a fork; of others a fork would leave half-done work behind. The main thread and
/// brokers are not counted. In a process that was forked off, those that its parent had then are: what they were at is
/// half done there.
int threads_started();

}  // namespace farad::base
