#pragma once

#include <cstdint>
#include <cstdlib>

namespace farad::test {

/// How many seeds a randomised test tries: `usual`, unless `./dev test --seeds N` asked for another number.
inline uint64_t number_of_seeds(uint64_t usual) {
  const char* asked = std::getenv("FARAD_TEST_SEEDS");
  return asked ? std::strtoull(asked, nullptr, 10) : usual;
}

}  // namespace farad::test
