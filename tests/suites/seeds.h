#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace farad::test {

/// How many seeds a randomised test tries: `usual`, unless `./dev test --seeds N` asked for another number.
inline uint64_t number_of_seeds(uint64_t usual) {
  const char* asked = std::getenv("FARAD_TEST_SEEDS");
  return asked ? std::strtoull(asked, nullptr, 10) : usual;
}

/// Calls try_one(seed) for that many seeds, until one fails, and says which it was. FARAD_TEST_SEED=N tries N alone.
template <class TryOne>
void for_each_seed(uint64_t usual, TryOne try_one) {
  const char* only = std::getenv("FARAD_TEST_SEED");
  uint64_t seed = only ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only ? seed : number_of_seeds(usual);
  for (; seed <= last; ++seed) {
    try {
      try_one(seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    // Not by SCOPED_TRACE, which knows only the thread that it is on.
    if (testing::Test::HasFailure()) FAIL() << "with seed " << seed << "; again with FARAD_TEST_SEED=" << seed;
  }
}

}  // namespace farad::test
