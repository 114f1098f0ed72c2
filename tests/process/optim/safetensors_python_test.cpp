// The files of Python's own safetensors library, and ours: each reads the other's. Skipped where it cannot be
// installed.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "optim/safetensors.h"

namespace farad::optim {
namespace {

namespace fs = std::filesystem;

class PythonsSafetensors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "farad-python-XXXXXX").string();
    directory = mkdtemp(pattern.data());
    const auto venv = directory + "/venv";
    there_is = std::system(("(timeout 60 python3 -m venv " + venv + " && timeout 120 " + venv +
                            "/bin/pip install --quiet safetensors numpy) > " + directory + "/log 2>&1")
                               .c_str()) == 0;
  }
  static void TearDownTestSuite() { fs::remove_all(directory); }
  void SetUp() override {
    if (!there_is) GTEST_SKIP() << "pip cannot install safetensors here: the library is not tried";
  }

  /// Runs a script in `directory`; true if it ended well.
  static bool python(const std::string& script) {
    std::ofstream(directory + "/script.py") << "import numpy\nfrom safetensors.numpy import load_file, save_file\n"
                                            << script;
    return std::system(("cd " + directory + " && venv/bin/python script.py").c_str()) == 0;
  }

  static inline std::string directory;
  static inline bool there_is = false;
};

TEST_F(PythonsSafetensors, ReadsOurFiles) {
  FileMark mark;
  const NamedTensors tensors{{"weight", at::arange(6, at::kFloat).reshape({2, 3})},
                             {"steps", at::scalar_tensor(7, at::kLong)},
                             {"none", at::empty({0, 2}, at::kDouble)}};
  ASSERT_TRUE(write_tensors(directory + "/ours.safetensors", tensors, mark).ok());
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
  const auto status = read_tensors(directory + "/theirs.safetensors", read);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_TRUE(at::equal(read.at("weight"), at::arange(6, at::kDouble).reshape({2, 3})));
  EXPECT_TRUE(at::equal(read.at("flags"), at::tensor({1, 0}).to(at::kBool)));
}

}  // namespace
}  // namespace farad::optim
