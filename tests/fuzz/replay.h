#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_targets.h"

namespace farad::fuzz {

/// Runs every input that is kept for a target; how many there were.
inline int replay(const std::string& target, void (*run)(Input)) {
  int inputs = 0;
  for (const std::string kept : {"corpus", "regressions"}) {
    const std::filesystem::path directory = FARAD_TESTS_DIR "/fuzz/" + kept + "/" + target;
    if (!std::filesystem::exists(directory)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      SCOPED_TRACE(entry.path());
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
      run({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      ++inputs;
    }
  }
  return inputs;
}

}  // namespace farad::fuzz
