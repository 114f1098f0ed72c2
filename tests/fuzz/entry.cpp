#include "fuzz/fuzz_targets.h"

// One program for each target; the build says which.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farad::fuzz::FARAD_FUZZ_TARGET({data, size});
  return 0;
}
