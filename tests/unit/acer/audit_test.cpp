#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "acer/audit.h"
#include "program.h"

namespace farad::acer {
namespace {

using testing::HasSubstr;

Run audit(std::vector<std::string> options, const char* environment = "Catch") {
  options.insert(options.begin(), {FARAD_COMMAND, "audit", "--rounds", "10"});
  options.insert(options.end(), {"--", FARAD_ACER, "--env", environment, "--hidden", "16"});
  return run(std::move(options));
}

TEST(Audit, FindsAcerCorrect) {
  for (const char* environment : {"Catch", "Pendulum-v1"}) {
    for (const char* type : {"f64", "f32"}) {
      const auto done = audit({"--dtype", type}, environment);
      EXPECT_EQ(done.code, 0) << done.said;
      EXPECT_THAT(done.said, HasSubstr("STALE-CORRECT"));
    }
  }
}

TEST(Audit, FindsTheDefectsThatImplementationsOfAcerHave) {
  for (const char* fault : {"kl-sign", "denominator-g2", "bias-attached", "q-taken-only", "done-as-truncation",
                            "terminal-never-sampled", "live-rollout", "stale-average", "accumulate"}) {
    const auto done = audit({"--inject", fault});
    EXPECT_EQ(done.code, 1) << done.said;
    EXPECT_THAT(done.said, HasSubstr("has to find: found")) << fault;
  }
}

TEST(Audit, FindsThemWhereActionsAreAmounts) {
  for (const char* fault :
       {"kl-sign", "denominator-g2", "bias-attached", "q-taken-only", "done-as-truncation", "live-rollout"}) {
    const auto done = audit({"--inject", fault}, "Pendulum-v1");
    EXPECT_EQ(done.code, 1) << done.said;
    EXPECT_THAT(done.said, HasSubstr("has to find: found")) << fault;
  }
}

TEST(Audit, IsOfTheOptimizerThatTheTrainingHas) {
  Settings settings;
  EXPECT_EQ(training_to_audit(settings).optimizer.kind, "RMSprop");
  settings.optimizer = Optimizer::Adam;
  settings.learning_rate = 0.25;
  const auto adam = training_to_audit(settings).optimizer;
  EXPECT_EQ(adam.kind, "Adam");
  EXPECT_EQ(adam.options.at("lr"), 0.25);
}

/// What `farad audit -- farad-acer` with these options complains of.
std::string refused(std::vector<std::string> options) {
  options.insert(options.begin(), {FARAD_COMMAND, "audit", "--", FARAD_ACER, "--env", "Catch"});
  const auto done = run(std::move(options));
  EXPECT_EQ(done.code, 2) << done.said;
  return done.said;
}

TEST(Audit, RefusesWhatItWouldNotSee) {
  EXPECT_THAT(refused({"--inject", "accumulate"}), HasSubstr("farad audit --inject accumulate -- farad-acer"));
  EXPECT_THAT(refused({"--owner"}), HasSubstr("leave out --owner"));
}

}  // namespace
}  // namespace farad::acer
