#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "acer/agent.h"
#include "acer/audit.h"
#include "acer/audit_batch.h"
#include "acer/audit_targets.h"
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

TEST(Audit, FindsAcerCorrectWithAdamAndWithLogits) {
  for (const auto& options : {std::vector<std::string>{"--optimizer", "adam"}, {"--statistics", "logits"}}) {
    const auto done = audit({}, "Catch", options);
    EXPECT_EQ(done.code, 0) << done.said;
    EXPECT_THAT(done.said, HasSubstr("STALE-CORRECT"));
  }
}

/// Where the specification says that each of them is found.
const std::map<std::string, std::string> stated{
    {"kl-sign", "A4"},
    {"denominator-g2", "A4"},
    {"bias-attached", "A3"},
    {"q-taken-only", "A1"},
    {"baseline-cut", "A1"},
    {"done-as-truncation", "A6"},
    {"truncation-as-done", "A6"},
    {"last-stored", "A6"},
    {"no-retrace", "A6"},
    {"taken-only", "A4"},
    {"bound-after-mean", "A1"},
    {"policy-cut", "A1"},
    {"live-rollout", "D6"},
    {"terminal-never-sampled", "D6"},
};

/// A check that failed has an X before it.
void expect_found(const std::string& fault, const char* environment, const std::vector<std::string>& more = {}) {
  const auto done = audit({"--inject", fault}, environment, more);
  EXPECT_EQ(done.code, 1) << done.said;
  EXPECT_THAT(done.said, HasSubstr("has to find: found")) << fault;
  EXPECT_THAT(done.said, HasSubstr("\nX " + stated.at(fault) + " ")) << fault;
}

TEST(Audit, FindsTheDefectsThatImplementationsOfAcerHaveAtTheStatedCheck) {
  const auto faults = training_to_audit({}).faults;
  EXPECT_EQ(faults.size(), stated.size());
  for (const auto& fault : faults) expect_found(fault.name, "Catch");
}

TEST(Audit, FindsThemWhereTheTrustRegionIsMeasuredInLogits) {
  for (const char* fault : {"kl-sign", "denominator-g2", "bias-attached", "taken-only"})
    expect_found(fault, "Catch", {"--statistics", "logits"});
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
  for (const auto& [fault, check] : stated) {
    if (fault != "taken-only") expect_found(fault, "Pendulum-v1");
  }
}

/// What ACER's own checks find of a training with these settings, by their names; some have several findings.
std::multimap<std::string, audit::Outcome> own_findings(const Settings& settings) {
  std::multimap<std::string, audit::Outcome> outcomes;
  const auto training = training_to_audit(settings);
  for (const auto& check : training.checks) {
    const auto found = check({}, {});
    outcomes.emplace(found.check, found.outcome);
  }
  return outcomes;
}

TEST(Audit, WhatIsNoNumberFailsEachOfItsChecksOfTheGradient) {
  for (const char* environment : {"Catch", "Pendulum-v1"}) {
    Settings settings;
    settings.environment = environment;
    settings.hidden = {16};
    for (const auto& [check, outcome] : own_findings(settings)) EXPECT_EQ(outcome, audit::Outcome::Passed) << check;
    settings.rules.discount = settings.rules.entropy = settings.rules.truncation = std::nan("");
    for (const auto& [check, outcome] : own_findings(settings)) {
      if (!check.starts_with("A")) continue;
      EXPECT_EQ(outcome, audit::Outcome::Failed) << environment << ", " << check;
    }
  }
}

TEST(Audit, AGapToWhatIsNoNumberIsNone) {
  EXPECT_EQ(largest_gap({1, 2, 5}, {1, 4, 4}), 2);
  EXPECT_TRUE(std::isnan(largest_gap({1, std::nan(""), 5}, {1, 4, 4})));
}

TEST(Audit, LooksAtTheTrustRegionThatTheTrainingHas) {
  Settings settings;
  settings.environment = "Catch";
  settings.rules.trust_region = false;
  EXPECT_EQ(own_findings(settings).find("A4")->second, audit::Outcome::Skipped);
  const auto done = audit({"--inject", "kl-sign"}, "Catch", {"--no-trust-region"});
  EXPECT_EQ(done.code, 2);
  EXPECT_THAT(done.said, HasSubstr("which --no-trust-region does without"));
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
