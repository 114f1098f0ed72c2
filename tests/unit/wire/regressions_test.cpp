#include "fuzz/replay.h"

namespace farad::fuzz {
namespace {

TEST(Regressions, EveryKeptFrameIsSurvived) { EXPECT_GT(replay("frame", fuzz_frame), 0); }
TEST(Regressions, EveryKeptTensorIsSurvived) { EXPECT_GT(replay("tensor", fuzz_tensor), 0); }
TEST(Regressions, EveryKeptValueIsSurvived) { EXPECT_GT(replay("value", fuzz_value), 0); }

}  // namespace
}  // namespace farad::fuzz
