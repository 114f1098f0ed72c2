#include "fuzz/replay.h"

namespace farad::fuzz {
namespace {

TEST(Regressions, EveryKeptIValueIsSurvived) { EXPECT_GT(replay("ivalue", fuzz_ivalue), 0); }

}  // namespace
}  // namespace farad::fuzz
