// What workers hear who cannot become a group.

#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "net/fabric.h"
#include "unit/net/rendezvous_support.h"

namespace farad::net::test {
namespace {

using ::testing::HasSubstr;

struct Deaf final : Sink {
  void on_message(Peer, wire::Message&&) override {}
  void on_lost(Peer, const base::Status&) override {}
  void on_unsent(Peer, const wire::Message&, const base::Status&) override {}
};

class FabricJoin : public ::testing::TestWithParam<const char*> {
 protected:
  FabricJoin() {
    const std::string kind = GetParam();
    if (kind == "tcp") url_ = "tcp://127.0.0.1:" + std::to_string(free_port());
    if (kind == "file") url_ = "file://" + directory_.file("meeting");
    if (kind == "local") url_ = "local://fabric-join";
  }

  /// What join() throws.
  std::string complaint(int rank, int size, std::chrono::milliseconds patience = 20s) const {
    FabricOptions options;
    options.rank = rank;
    options.size = size;
    options.rendezvous = url_;
    options.join_timeout = patience;
    Deaf sink;
    try {
      Fabric::join(std::move(options), sink);
    } catch (const Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing";
  }

  TemporaryDirectory directory_;
  std::string url_;
};

TEST_P(FabricJoin, RankOutOfRangeIsToldToAll) {
  const std::vector<int> ranks{0, 1, 3};
  std::vector<std::string> complaints(ranks.size());
  std::vector<std::thread> workers;
  for (size_t i = 0; i < ranks.size(); ++i) {
    workers.emplace_back([&, i] { complaints[i] = complaint(ranks[i], 3); });
  }
  for (auto& worker : workers) worker.join();
  for (const auto& each : complaints) {
    EXPECT_THAT(each, HasSubstr("\"worker3\" (rank 3) has a rank out of range: a group of 3 has ranks 0 to 2"));
  }
}

TEST_P(FabricJoin, RankOutOfRangeThatMeetsNobodySaysSoByItself) {
  EXPECT_THAT(complaint(3, 3, 50ms), HasSubstr("out of range: a group of 3 has ranks 0 to 2"));
}

TEST_P(FabricJoin, RankThatWouldWrapIsNotTakenForAnother) {
  EXPECT_THAT(complaint(65'536, 3, 50ms), HasSubstr("rank 65536 is out of range in a group of 3"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, FabricJoin, ::testing::Values("tcp", "file", "local"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::net::test
