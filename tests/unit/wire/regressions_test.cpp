#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_targets.h"

namespace farad::fuzz {
namespace {

/// Runs every input that is kept for a target; how many there were.
int replay(const std::string& target, void (*run)(Input)) {
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

TEST(Regressions, EveryKeptFrameIsSurvived) { EXPECT_GT(replay("frame", fuzz_frame), 0); }
TEST(Regressions, EveryKeptTensorIsSurvived) { EXPECT_GT(replay("tensor", fuzz_tensor), 0); }
TEST(Regressions, EveryKeptValueIsSurvived) { EXPECT_GT(replay("value", fuzz_value), 0); }

}  // namespace
}  // namespace farad::fuzz
