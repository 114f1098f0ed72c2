// The files of Python's own safetensors library, and ours: each reads the other's. Skipped where it cannot be
// installed.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "optim/safetensors.h"
#include "process/python_packages.h"

namespace farad::optim {
namespace {

class PythonsSafetensors : public testing::Test {
 protected:
  static void SetUpTestSuite() { packages = std::make_unique<test::PythonPackages>("safetensors numpy"); }
  static void TearDownTestSuite() { packages.reset(); }
  void SetUp() override {
    if (!packages->are_there()) GTEST_SKIP() << "pip cannot install safetensors here: the library is not tried";
  }

  static bool python(const std::string& script) {
    return packages->run("import numpy\nfrom safetensors.numpy import load_file, save_file\n" + script);
  }
  static std::string file(const std::string& name) { return packages->directory() + "/" + name; }

  static inline std::unique_ptr<test::PythonPackages> packages;
};

TEST_F(PythonsSafetensors, ReadsOurFiles) {
  FileMark mark;
  const NamedTensors tensors{{"weight", at::arange(6, at::kFloat).reshape({2, 3})},
                             {"steps", at::scalar_tensor(7, at::kLong)},
                             {"none", at::empty({0, 2}, at::kDouble)}};
  ASSERT_TRUE(write_tensors(file("ours.safetensors"), tensors, mark).ok());
  EXPECT_TRUE(python(R"(
read = load_file("ours.safetensors")
assert set(read) == {"weight", "steps", "none"}, read
assert read["weight"].dtype == numpy.float32 and (read["weight"] == numpy.arange(6).reshape(2, 3)).all()
assert read["steps"].dtype == numpy.int64 and read["steps"].shape == () and read["steps"] == 7
assert read["none"].shape == (0, 2)
)"));
}

TEST_F(PythonsSafetensors, WritesFilesThatWeRead) {
  ASSERT_TRUE(python(R"(
save_file({"weight": numpy.arange(6, dtype=numpy.float64).reshape(2, 3), "flags": numpy.array([True, False])},
          "theirs.safetensors", metadata={"format": "np"})
)"));
  NamedTensors read;
  const auto status = read_tensors(file("theirs.safetensors"), read);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_TRUE(at::equal(read.at("weight"), at::arange(6, at::kDouble).reshape({2, 3})));
  EXPECT_TRUE(at::equal(read.at("flags"), at::tensor({1, 0}).to(at::kBool)));
}

}  // namespace
}  // namespace farad::optim
