#include "optim/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "temporary_directory.h"

namespace farad::optim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  std::string directory() const { return directory_.file("checkpoint"); }
  void write(double value) const {
    CheckpointWriter writer(directory());
    ASSERT_TRUE(writer.begin(facts_).ok());
    ASSERT_TRUE(writer.add({{"a", at::full({3}, value)}}).ok());
    ASSERT_TRUE(writer.finish(facts_).ok());
  }
  base::Status read(NamedTensors& tensors) const {
    CheckpointFacts facts;
    return read_checkpoint(directory(), facts, tensors);
  }
  /// Edits the manifest, and seals it as we would.
  void edit(const std::function<void(Json&)>& change) const {
    const auto path = directory() + "/manifest.json";
    auto manifest = Json::parse(std::ifstream(path));
    manifest.erase("checksum");
    change(manifest);
    manifest["checksum"] = sha256_of(manifest.dump());
    std::ofstream(path) << manifest.dump(1);
  }

  const test::TemporaryDirectory directory_;
  const CheckpointFacts facts_{{{{"SGD", {{"lr", 0.1}}}, 1}}};
};

TEST_F(Checkpoint, OnlyOneIsWrittenAtATime) {
  write(1);
  {
    CheckpointWriter first(directory()), second(directory());
    ASSERT_TRUE(first.begin(facts_).ok());
    ASSERT_TRUE(first.add({{"a", at::full({3}, 2.0)}}).ok());
    EXPECT_THAT(second.begin(facts_).message(), AllOf(HasSubstr(directory()), HasSubstr("right now")));
    ASSERT_TRUE(first.finish(facts_).ok());
  }
  NamedTensors tensors;
  EXPECT_TRUE(read(tensors).ok()) << "who was refused has removed what was not its own";
  EXPECT_TRUE(at::equal(tensors.at("a"), at::full({3}, 2.0)));
  write(3);
}

TEST_F(Checkpoint, ManifestNamesNothingOutsideItsDirectory) {
  write(1);
  // As good a file as any, but for where it lies.
  fs::copy_file(directory() + "/00000001-0.safetensors", directory_.file("00000001-0.safetensors"));
  for (const std::string name : {"../00000001-0.safetensors", "/etc/passwd", "", "..", "1-0.safetensors/../../x",
                                 "00000001-0.safetensors/", "00000001--1.safetensors"}) {
    edit([&](Json& manifest) { manifest["files"][0]["name"] = name; });
    NamedTensors tensors;
    const auto status = read(tensors);
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("\"" + name + "\""), HasSubstr("none of ours")));
    EXPECT_TRUE(tensors.empty());
  }
  edit([&](Json& manifest) { manifest["files"][0]["name"] = "00000001-0.safetensors"; });
  NamedTensors tensors;
  EXPECT_TRUE(read(tensors).ok()) << "what was refused was not the edited seal";
}

}  // namespace
}  // namespace farad::optim
