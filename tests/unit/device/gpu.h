#pragma once

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

namespace farad::test {

inline const at::Device gpu(at::kCUDA, 0);

/// Tests that need a GPU, and are skipped where there is none.
class NeedsGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "libtorch finds no GPU here";
    at::ones({1}, gpu).cpu();  // What a process does once for CUDA takes a second, which is not for a call to wait for.
  }
};

inline at::TensorOptions on_gpu(at::ScalarType type = at::kFloat) {
  return at::TensorOptions().dtype(type).device(gpu);
}

/// A stream other than the default one, and whose work does not wait for that one's.
inline c10::Stream side_stream() { return c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(gpu); }

/// Keeps the current stream busy for a tenth of a second or so: whoever does not wait for it sees what was before.
inline void keep_busy() {
  const auto matrix = at::ones({4096, 4096}, on_gpu(at::kDouble));
  auto product = matrix;
  for (int i = 0; i < 30; i++) product = at::mm(matrix, product).div_(4096);
}

inline void wait_for_gpu() { c10::impl::VirtualGuardImpl(at::kCUDA).getDefaultStream(gpu).synchronize(); }

}  // namespace farad::test
