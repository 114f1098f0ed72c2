// The audit of a training with each defect that can be planted: is it found by the check that is named for it?

#include <farad/audit.h>
#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "audit/builtin.h"
#include "audit/faults.h"
#include "audit/report.h"
#include "process/audit/small.h"

namespace farad::test {
namespace {

using audit::Options;
using audit::Outcome;
using audit::Report;
using audit::Verdict;
using testing::HasSubstr;

/// Those that it is a defect of.
std::vector<shared::Policy> policies_of(const audit::Fault& fault) {
  if (fault.policies.empty()) return {std::begin(all_policies), std::end(all_policies)};
  return fault.policies;
}

Options planted(const audit::Fault& fault, shared::Policy policy) {
  auto options = small(policy);
  options.inject = fault.name;
  return options;
}
Options planted(const audit::Fault& fault) { return planted(fault, policies_of(fault).front()); }

TEST(Audit, DefectsOfSeveralWorkersAreRefusedWithOne) {
  auto faults = audit::faults();
  std::erase_if(faults, [](const auto& fault) { return fault.least_workers == 1; });
  EXPECT_FALSE(faults.empty());
  for (const auto& fault : faults) {
    auto options = planted(fault);
    options.workers = 1;
    EXPECT_THROW(audit::run(audit::builtin(), options), c10::Error) << fault.name;
  }
}

TEST(Audit, DefectsOfSomePoliciesAreRefusedUnderTheOthers) {
  int refused = 0;
  for (const auto& fault : audit::faults()) {
    for (const auto policy : all_policies) {
      if (fault.policies.empty() || testing::Value(fault.policies, testing::Contains(policy))) continue;
      auto options = planted(fault);
      options.policy = policy;
      EXPECT_THROW(audit::run(audit::builtin(), options), c10::Error) << fault.name;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

struct Planted {
  audit::Fault fault;
  shared::Policy policy;
};

void PrintTo(const Planted& planted, std::ostream* out) {
  *out << planted.fault.name << ", " << audit::to_string(planted.policy);
}

/// Every defect under every policy that it can be planted under.
std::vector<Planted> every_one() {
  std::vector<Planted> all;
  for (const auto& fault : audit::faults()) {
    for (const auto policy : policies_of(fault)) all.push_back({fault, policy});
  }
  return all;
}

class AuditWithFault : public testing::TestWithParam<Planted> {};

TEST_P(AuditWithFault, IsCaughtByTheCheckNamedForIt) {
  const auto& [fault, policy] = GetParam();
  const auto report = audit::run(audit::builtin(), planted(fault, policy));
  EXPECT_EQ(report.verdict, Verdict::Broken);
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(audit::caught(fault, report)) << report.table();
}

INSTANTIATE_TEST_SUITE_P(Every, AuditWithFault, testing::ValuesIn(every_one()), [](const auto& info) {
  auto name = info.param.fault.name + "_" + audit::to_string(info.param.policy);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Audit, ADefectThatIsNotFoundByTheCheckNamedForItIsAFailure) {
  auto training = audit::builtin();
  training.faults.push_back({"nothing", "A1", "what no check can see, for it is not there"});
  training.faults.push_back({"halved", "X1", "gradients of half the size, which other checks see"});
  training.make = [make = training.make](const Options& options) {
    auto learner = make(options);
    if (options.inject != "halved") return learner;
    learner.gradients = [compute = learner.gradients, tensors = learner.tensors](const audit::Batch& batch) {
      compute(batch);
      for (const auto& one : tensors) one.tensor.grad().mul_(0.5);
    };
    return learner;
  };
  for (const char* name : {"nothing", "halved"}) {
    auto options = small();
    options.inject = name;
    const auto report = audit::run(training, options);
    EXPECT_FALSE(report.passed()) << report.table();
    EXPECT_THAT(report.table(), HasSubstr("NOT FOUND"));
    EXPECT_THAT(report.table(), HasSubstr(std::string("has not found the defect that was planted, ") + name));
    EXPECT_THAT(report.json(), HasSubstr("\"passed\": false"));
  }
}

TEST(Audit, ChecksAndFaultsOfTheTrainingCount) {
  auto training = audit::builtin();
  training.faults.push_back({"half", "X1", "gradients of half the size"});
  training.checks.push_back([](const audit::Evidence& evidence, const Options& options) {
    return audit::finding("X1", "there is evidence", evidence.sent.size() == 24 && options.inject.empty() ? 0 : 1, 0);
  });
  EXPECT_EQ(audit::run(training, small()).find("X1")->outcome, Outcome::Passed);
  auto options = small();
  options.inject = "half";
  const auto make = training.make;
  training.make = [make](const Options& how) {
    auto learner = make(how);
    if (how.inject != "half") return learner;
    learner.gradients = [compute = learner.gradients, tensors = learner.tensors](const audit::Batch& batch) {
      compute(batch);
      for (const auto& one : tensors) one.tensor.grad().mul_(0.5);
    };
    return learner;
  };
  const auto report = audit::run(training, options);
  EXPECT_THAT(report.failed(), testing::IsSupersetOf({"A1", "A2", "B2", "X1"}));
}

TEST(Audit, UnknownFaultIsRefusedWithThoseThereAre) {
  auto options = small();
  options.inject = "gremlins";
  try {
    audit::run(audit::builtin(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("accumulate"));
  }
}

}  // namespace
}  // namespace farad::test
