#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "acer/agent.h"
#include "acer/audit.h"
#include "acer/audit_batch.h"
#include "acer/environments/registry.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

Run audit(std::vector<std::string> options, const char* environment = "Catch", std::vector<std::string> more = {}) {
  options.insert(options.begin(), {FARAD_COMMAND, "audit", "--rounds", "10"});
  options.insert(options.end(), {"--", FARAD_ACER, "--env", environment, "--hidden", "16"});
  options.insert(options.end(), more.begin(), more.end());
  return run(std::move(options));
}

TEST(Audit, FindsAcerCorrect) {
  for (const char* environment : {"Catch", "Pendulum-v1"}) {
    for (const char* type : {"f64", "f32"}) {
      const auto done = audit({"--dtype", type}, environment);
      EXPECT_EQ(done.code, 0) << done.said;
      EXPECT_THAT(done.said, HasSubstr("STALE-CORRECT"));
      EXPECT_THAT(done.said, HasSubstr("gradients are longer than 10"));  // C4
    }
  }
}

TEST(Audit, FindsAcerToBeWhatEachPolicyPromises) {
  const std::pair<const char*, const char*> verdicts[] = {{"locked", "^STALE-CORRECT: "},
                                                          {"hogwild", "^(LOSSY|STALE-CORRECT): "},
                                                          {"allreduced", "^(EXACT|EQUIVALENT): "},
                                                          {"managed", "^STALE-CORRECT: "},
                                                          {"averaged", "^EXACT: .* averages them likewise"}};
  for (const auto& [policy, verdict] : verdicts) {
    const auto done = audit({"--policy", policy});
    EXPECT_EQ(done.code, 0) << done.said;
    const auto last = done.said.substr(done.said.find_last_of('\n', done.said.size() - 2) + 1);
    EXPECT_THAT(last, ContainsRegex(verdict)) << policy;
  }
}

TEST(Audit, FindsTheDefectsThatImplementationsOfAcerHave) {
  for (const auto& fault : training_to_audit({}).faults) {
    const auto done = audit({"--inject", fault.name});
    EXPECT_EQ(done.code, 1) << done.said;
    EXPECT_THAT(done.said, HasSubstr("has to find: found")) << fault.name;
  }
}

TEST(Audit, FindsTheDefectsOfEveryTrainingInThisOneToo) {
  for (const auto& fault : audit::faults()) {
    const bool together = fault.name == "no-divide" || fault.name == "divide-by-N";
    const auto done = audit({"--inject", fault.name, "--policy", together ? "allreduced" : "locked"}, "Catch",
                            {"--optimizer", fault.name == "private-step" ? "adam" : "rmsprop"});
    EXPECT_EQ(done.code, 1) << done.said;
    EXPECT_THAT(done.said, HasSubstr("has to find: found")) << fault.name;
  }
}

TEST(Audit, FindsThemWhereActionsAreAmounts) {
  for (const char* fault :
       {"kl-sign", "denominator-g2", "bias-attached", "q-taken-only", "done-as-truncation", "truncation-as-done",
        "last-stored", "no-retrace", "bound-after-mean", "policy-cut", "live-rollout"}) {
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

/// What the audit sees must be what a training meets: actions that became so likely that their weights are cut and
/// corrected for, and a trust region that acts, beside steps of the policy itself.
TEST(Audit, LooksAtWindowsThatAreOnAndFarOffThePolicy) {
  for (const char* environment : {"Catch", "CartPole-v1", "Pendulum-v1"}) {
    Settings settings;
    settings.environment = environment;
    settings.hidden = {16};
    settings.rules.largest_gradient = 0;
    const auto spec = make_environment(environment)->spec();
    audit::Options options;
    options.dtype = c10::ScalarType::Float;
    const auto learner = training_to_audit(settings).make(options);
    const auto agent = make_agent(settings, spec);
    {
      const c10::NoGradGuard no_grad;
      const auto parameters = agent->network().parameters(), average = agent->average().parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].copy_(learner.tensors[i].tensor);
        average[i].copy_(learner.average[i].tensor);
      }
    }
    double on_policy = 0, corrected = 0, bounded = 0;
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
      const auto batch = learner.batch(0, sequence);
      const auto found = agent->learn(from_tensors(batch));
      on_policy += batch.tensors[BatchPart::windows].select(1, WindowColumn::on_policy).sum().item<double>();
      corrected += std::abs(found.correction_loss);
      bounded += found.bounded;
    }
    EXPECT_EQ(on_policy, 20) << environment;
    EXPECT_GT(corrected, 0) << environment;
    // Elsewhere only once the average is no longer what the policy is.
    if (environment == std::string("Catch")) {
      EXPECT_GT(bounded, 0);
    }
  }
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
  EXPECT_THAT(refused({"--workers", "3"}), HasSubstr("farad audit --workers ... -- farad-acer"));
  EXPECT_THAT(refused({"--policy", "hogwild"}), HasSubstr("farad audit --policy ... -- farad-acer"));
}

}  // namespace
}  // namespace farad::acer
