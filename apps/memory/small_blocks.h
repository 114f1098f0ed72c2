#pragma once

namespace farad::memory {

/// The variable that says how glibc's malloc works. It is read when a program is loaded.
inline constexpr const char* malloc_variable = "GLIBC_TUNABLES";

/// What graphs are made of are small blocks, some 160 at the caller for a call and its pass, and they are given back in
/// batches. Of each size a thread keeps so many at hand, without a look at what all threads share; else it is seven.
inline constexpr const char* many_small_blocks = "glibc.malloc.tcache_count=127";

}  // namespace farad::memory
