#include "optim/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "fuzz/replay.h"
#include "temporary_directory.h"

namespace farad::optim {
namespace {

using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  /// A file with that header and so many bytes after it.
  void put(const std::string& header, size_t bytes, uint64_t claimed) {
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&claimed), sizeof claimed);
    file << header << std::string(bytes, '\1');
  }
  std::string refusal(const std::string& header, size_t bytes = 0) {
    put(header, bytes, header.size());
    NamedTensors tensors{{"kept", at::ones({1})}};
    const auto status = read_tensors(path_, tensors);
    EXPECT_FALSE(status.ok()) << header;
    EXPECT_TRUE(tensors.contains("kept")) << "nothing is changed";
    return status.message();
  }

  const test::TemporaryDirectory directory_;
  const std::string path_ = directory_.file("file.safetensors");
};

TEST_F(Safetensors, TensorsOfEveryTypeComeBackAsTheyWere) {
  NamedTensors tensors;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                          at::kFloat, at::kDouble}) {
    tensors.emplace(std::string("of ") + c10::toString(type), at::arange(6).reshape({2, 3}).to(type));
  }
  tensors.emplace("a scalar", at::scalar_tensor(2.5));
  tensors.emplace("nothing", at::empty({0, 3}));
  tensors.emplace("turned", at::arange(6).reshape({2, 3}).t());
  tensors.emplace("\"quoted\" ü", at::ones({1}));
  FileMark mark;
  ASSERT_TRUE(write_tensors(path_, tensors, mark).ok());
  NamedTensors read;
  const auto status = read_tensors(path_, mark, read);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.at(name).dtype(), tensor.dtype()) << name;
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
  }
}

TEST_F(Safetensors, TensorsThatLieUnalignedAreRead) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"I32","shape":[2],"data_offsets":[1,9]}})";
  put(header, 9, header.size());
  NamedTensors read;
  const auto status = read_tensors(path_, read);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read.at("b")[1].item<int>(), 0x01010101);
}

TEST_F(Safetensors, WhatTheFormatDoesNotHaveIsNotWritten) {
  FileMark mark;
  EXPECT_THAT(write_tensors(path_, {{"z", at::ones({1}, at::kComplexFloat)}}, mark).message(), HasSubstr("\"z\""));
}

TEST_F(Safetensors, TornAndChangedFilesAreRefused) {
  FileMark mark;
  ASSERT_TRUE(write_tensors(path_, {{"a", at::arange(100)}}, mark).ok());
  NamedTensors read;
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_THAT(read_tensors(path_, mark, read).message(), testing::AllOf(HasSubstr(path_), HasSubstr("changed")));
  std::filesystem::resize_file(path_, mark.size - 8);
  EXPECT_THAT(read_tensors(path_, mark, read).message(), testing::AllOf(HasSubstr(path_), HasSubstr("torn")));
  std::filesystem::remove(path_);
  EXPECT_THAT(read_tensors(path_, mark, read).message(), testing::AllOf(HasSubstr(path_), HasSubstr("No such file")));
}

TEST_F(Safetensors, HostileFilesAreRefusedByWhatIsWrong) {
  EXPECT_THAT(refusal("no JSON"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("no object"));
  EXPECT_THAT(refusal(std::string(200'000, '[')), HasSubstr("no JSON"));
  EXPECT_THAT(refusal(R"({"a":1})"), HasSubstr("\"a\""));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("type"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4),
              HasSubstr("too large"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("another size"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), HasSubstr("outside"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8), HasSubstr("outside"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
              HasSubstr("one after the other"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8), HasSubstr("fill"));
  const std::string one = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal("{" + one + "," + one + "}", 1), HasSubstr("twice"));
  EXPECT_THAT(refusal("{" + one + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("another"));
  put("{}", 0, uint64_t{1} << 60);
  NamedTensors read;
  EXPECT_THAT(read_tensors(path_, read).message(), HasSubstr("header would have"));
  std::ofstream(path_) << "short";
  EXPECT_THAT(read_tensors(path_, read).message(), HasSubstr("too short"));
}

TEST(Regressions, EveryKeptFileIsSurvived) { EXPECT_GT(fuzz::replay("safetensors", fuzz::fuzz_safetensors), 0); }

}  // namespace
}  // namespace farad::optim
