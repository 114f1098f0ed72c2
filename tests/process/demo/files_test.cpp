#include "demo/files.h"

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "temporary_directory.h"

namespace farad::demo {
namespace {

namespace fs = std::filesystem;

/// What is removed from a directory, in order.
class Removals {
 public:
  explicit Removals(const std::string& directory) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_.get(), directory.c_str(), IN_DELETE), 0);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    alignas(inotify_event) char buffer[16 << 10];
    const auto size = ::read(fd_.get(), buffer, sizeof buffer);
    for (ssize_t at = 0; at < size;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
      if (event.len > 0) names.emplace_back(event.name);
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
    return names;
  }

 private:
  const base::Fd fd_;
};

class DemoCheckpoints : public testing::Test {
 protected:
  /// Its manifest is neither the first nor the last that a directory lists, whichever way it does.
  static void fill(const std::string& directory) {
    fs::create_directories(directory);
    for (const auto* name : {"1-0.safetensors", "1-1.safetensors", "1-2.safetensors", "manifest.json",
                             "1-3.safetensors", "1-4.safetensors", "1-5.safetensors"}) {
      std::ofstream(directory + "/" + name) << "something";
    }
  }

  const test::TemporaryDirectory directory_;
  const Checkpoints checkpoints_{directory_.path()};
};

TEST_F(DemoCheckpoints, LastOneIsTheLastWithAManifest) {
  EXPECT_FALSE(checkpoints_.last());
  checkpoints_.save(5, fill);
  fs::create_directories(directory_.file("step10"));
  ASSERT_TRUE(checkpoints_.last());
  EXPECT_EQ(checkpoints_.last()->steps, 5);
}

TEST_F(DemoCheckpoints, WhatIsHalfRemovedDoesNotLookWhole) {
  checkpoints_.save(5, fill);
  const Removals of_the_older(directory_.file("step5"));
  checkpoints_.save(10, fill);
  const Removals of_the_last(directory_.file("step10"));
  checkpoints_.clear();
  for (const auto* removals : {&of_the_older, &of_the_last}) {
    const auto names = removals->names();
    ASSERT_EQ(names.size(), 7u);
    EXPECT_EQ(names.front(), "manifest.json");
  }
  EXPECT_FALSE(checkpoints_.last());
}

}  // namespace
}  // namespace farad::demo
