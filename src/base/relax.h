#pragma once

namespace farad::base {

/// Tells the core that this thread only looks, so that it leaves more to the one that it shares the core with.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace farad::base
