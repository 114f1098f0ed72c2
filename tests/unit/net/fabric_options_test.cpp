#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "net/fabric.h"
#include "unit/net/rendezvous_support.h"

namespace farad::net {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Values = base::Environment::Values;

FabricOptions from(Values values, const WorkerOptions& options = {}) {
  return FabricOptions::from(options, base::Environment::of(std::move(values)));
}

std::string complaint(Values values) {
  try {
    (void)from(std::move(values));
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

/// A file with that text and mode.
std::string secret_file(const test::TemporaryDirectory& directory, const std::string& text, mode_t mode) {
  const std::string path = directory.file("secret");
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

TEST(FabricOptions, AreThoseOfTheWorkerAndTheEnvironment) {
  WorkerOptions worker;
  worker.name = "trainer";
  worker.rank = 1;
  worker.size = 4;
  worker.rendezvous = "local://here";
  worker.transport = "tcp";
  worker.join_timeout = 5s;
  worker.lost_after = 7s;

  const auto options = from({{"FARAD_QUEUE_BYTES", "1M"},
                             {"FARAD_POOL_BYTES", "2G"},
                             {"FARAD_SPIN_US", "0"},
                             {"FARAD_BIND", "10.0.0.3"},
                             {"FARAD_SECRET", "known to us"},
                             {"FARAD_LIMIT_BODY", "1K"},
                             {"FARAD_LIMIT_DEPTH", "3"},
                             {"FARAD_LOG", "debug"}},
                            worker);

  EXPECT_EQ(options.name, "trainer");
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.rendezvous, "local://here");
  EXPECT_EQ(options.transport, "tcp");
  EXPECT_EQ(options.join_timeout, 5s);
  EXPECT_EQ(options.lost_after, 7s);
  EXPECT_EQ(options.queue_bytes, size_t{1} << 20);
  EXPECT_EQ(options.pool_bytes, size_t{2} << 30);
  EXPECT_EQ(options.spin, 0us);
  EXPECT_EQ(options.bind, "10.0.0.3");
  EXPECT_EQ(options.secret.bytes(), "known to us");
  EXPECT_EQ(options.limits.body_bytes, 1024u);
  EXPECT_EQ(options.limits.depth, 3u);
  EXPECT_EQ(options.log_level, base::Level::Debug);
}

TEST(FabricOptions, DefaultsOfTheTableAreThoseOfTheStruct) {
  const FabricOptions plain;
  const auto options = from({});

  EXPECT_EQ(options.queue_bytes, plain.queue_bytes);
  EXPECT_EQ(options.pool_bytes, plain.pool_bytes);
  EXPECT_EQ(options.spin, plain.spin);
  EXPECT_EQ(options.limits.body_bytes, plain.limits.body_bytes);
  EXPECT_EQ(options.limits.payload_bytes, plain.limits.payload_bytes);
  EXPECT_EQ(options.limits.tensors, plain.limits.tensors);
  EXPECT_EQ(options.limits.dims, plain.limits.dims);
  EXPECT_EQ(options.limits.depth, plain.limits.depth);
  EXPECT_EQ(options.limits.elements, plain.limits.elements);
  EXPECT_EQ(options.log_level, plain.log_level);
  EXPECT_TRUE(options.secret.empty());
}

TEST(FabricOptions, MalformedVariableIsRefusedByName) {
  for (const char* name : {"FARAD_QUEUE_BYTES", "FARAD_POOL_BYTES", "FARAD_SPIN_US", "FARAD_LOG"}) {
    EXPECT_THAT(complaint({{name, "many"}}), HasSubstr(std::string(name) + "=\"many\""));
  }
}

TEST(FabricOptions, SecretMayLieInAFileOfOnesOwn) {
  const test::TemporaryDirectory directory;
  const auto path = secret_file(directory, "known to us\n", 0600);

  EXPECT_EQ(from({{"FARAD_SECRET_FILE", path}}).secret.bytes(), "known to us");
  EXPECT_EQ(from({{"FARAD_SECRET_FILE", path}, {"FARAD_SECRET", "first"}}).secret.bytes(), "first");
}

TEST(FabricOptions, SecretFileThatIsOpenEmptyOrMissingIsRefused) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(complaint({{"FARAD_SECRET_FILE", directory.file("none")}}), HasSubstr("cannot be read"));
  EXPECT_THAT(complaint({{"FARAD_SECRET_FILE", secret_file(directory, "x", 0640)}}), HasSubstr("chmod 600"));
  EXPECT_THAT(complaint({{"FARAD_SECRET_FILE", secret_file(directory, "\n", 0600)}}), HasSubstr("is empty"));
}

}  // namespace
}  // namespace farad::net
