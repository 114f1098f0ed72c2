// The audit of a training that is right, and of the same one with each defect that can be planted.

#include <ATen/ops/equal.h>
#include <farad/audit.h>
#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "audit/builtin.h"
#include "audit/faults.h"
#include "audit/replay.h"
#include "audit/report.h"

namespace farad::test {
namespace {

using audit::Options;
using audit::Outcome;
using audit::Report;
using audit::Verdict;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr shared::Policy all_policies[] = {shared::Policy::Locked, shared::Policy::Hogwild, shared::Policy::AllReduced,
                                           shared::Policy::Managed, shared::Policy::Averaged};

Options small(shared::Policy policy = shared::Policy::Locked) {
  Options options;
  options.rounds = 12;
  options.policy = policy;
  return options;
}

TEST(Audit, LockedIsCorrectForTheVersionThatWasRead) {
  const auto report = audit::run(audit::builtin(), small());
  EXPECT_EQ(report.verdict, Verdict::StaleCorrect) << report.table();
  EXPECT_THAT(report.failed(), IsEmpty());
  EXPECT_EQ(report.updates, 24u);
  EXPECT_EQ(report.find("D4")->value, 0) << "one process that replays it gets the same to the bit";
}

TEST(Audit, HogwildIsLossyWithinItsBound) {
  const auto report = audit::run(audit::builtin(), small(shared::Policy::Hogwild));
  EXPECT_EQ(report.verdict, Verdict::Lossy) << report.table();
}

TEST(Audit, AllReducedIsOneProcessButForTheOrderOfSums) {
  auto options = small(shared::Policy::AllReduced);
  options.workers = 3;
  const auto report = audit::run(audit::builtin(), options);
  EXPECT_EQ(report.verdict, Verdict::Equivalent) << report.table();
  EXPECT_EQ(report.updates, 12u);
  EXPECT_EQ(report.find("D4")->value, 0) << report.table();
}

TEST(Audit, ManagedIsCorrectForTheVersionThatWasRead) {
  const auto report = audit::run(audit::builtin(), small(shared::Policy::Managed));
  EXPECT_EQ(report.verdict, Verdict::StaleCorrect) << report.table();
  EXPECT_EQ(report.find("D4")->value, 0) << report.table();
}

TEST(Audit, AveragedIsOneProcessThatAveragesLikewise) {
  auto options = small(shared::Policy::Averaged);
  options.workers = 3;
  const auto report = audit::run(audit::builtin(), options);
  EXPECT_EQ(report.verdict, Verdict::Exact) << report.table();
  EXPECT_THAT(report.json(), HasSubstr("averages them likewise"));
}

TEST(Audit, TellsWhatCuttingGradientsWouldChange) {
  auto training = audit::builtin();
  const auto cutting = [&](int workers) {
    auto options = small();
    options.workers = workers;
    const auto report = audit::run(training, options);
    EXPECT_TRUE(report.passed()) << report.table();
    EXPECT_EQ(report.find("C4")->outcome, Outcome::Reported);
    return *report.find("C4");
  };
  EXPECT_GT(cutting(2).value, 1e-3);  // by a bound that most gradients exceed
  EXPECT_LT(cutting(1).value, 1e-12) << "the mean of one is that one";
  training.largest_gradient = 1e9;
  EXPECT_EQ(cutting(2).value, 0);
  EXPECT_THAT(cutting(2).note, HasSubstr("0 of 24 gradients are longer than 1e+09"));
}

TEST(Audit, NothingIsSkippedUnderAnyPolicy) {
  for (const auto policy : all_policies) {
    auto options = small(policy);
    options.average_every = policy == shared::Policy::Averaged ? 1 : 5;
    const auto report = audit::run(audit::builtin(), options);
    EXPECT_TRUE(report.passed()) << report.table();
    for (const auto& one : report.findings) EXPECT_NE(one.outcome, Outcome::Skipped) << one.check << report.table();
  }
}

TEST(Audit, WhatTheOptimizerConsumedIsAddedUpNotWhatTheWorkersHad) {
  auto training = audit::builtin();
  training.deliver = [](const audit::Delivery& delivery) {
    std::vector<at::Tensor> halves;
    for (const auto& one : delivery.gradients) halves.push_back(one.mul(0.5));
    delivery.model.step(halves);
  };
  EXPECT_THAT(audit::run(training, small()).failed(), testing::IsSupersetOf({"B1", "C1"}));
}

TEST(Audit, AReplayWithoutRoomForAllVersionsComesToTheSame) {
  for (const auto policy : {shared::Policy::Locked, shared::Policy::Averaged}) {
    auto training = audit::builtin();
    const auto plain = training;
    training.checks.push_back([&](const audit::Evidence& evidence, const Options& options) {
      const auto whole = audit::replay(plain, options, evidence), tight = audit::replay(plain, options, evidence, 0);
      EXPECT_EQ(whole.values.size(), tight.values.size());
      EXPECT_TRUE(at::equal(whole.values.back(), tight.values.back()));
      EXPECT_EQ(tight.other_values, 0u);
      const auto kept =
          std::count_if(tight.values.begin(), tight.values.end(), [](const auto& v) { return v.defined(); });
      return audit::finding("X1", "only the last version is kept", static_cast<double>(kept), 1);
    });
    EXPECT_EQ(audit::run(training, small(policy)).find("X1")->outcome, Outcome::Passed);
  }
}

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

TEST(Audit, WhatGoesAroundTheModelIsNotSeenToHaveBeenApplied) {
  auto training = audit::builtin();
  training.deliver = [](const audit::Delivery& delivery) {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < delivery.gradients.size(); ++i) {
      delivery.parameters[i].sub_(delivery.gradients[i], 0.01);
    }
  };
  EXPECT_THAT(audit::run(training, small()).failed(), testing::IsSupersetOf({"B3", "D4"}));
}

TEST(Audit, OneWorkerIsExact) {
  auto options = small();
  options.workers = 1;
  const auto report = audit::run(audit::builtin(), options);
  EXPECT_EQ(report.verdict, Verdict::Exact) << report.table();
}

TEST(Audit, SinglePrecisionAndMoreWorkersThanCoresPass) {
  auto options = small();
  options.workers = 5;
  options.dtype = c10::ScalarType::Float;
  options.seed = 7;
  const auto report = audit::run(audit::builtin(), options);
  EXPECT_EQ(report.verdict, Verdict::StaleCorrect) << report.table();
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

TEST(Audit, TellsHowLateTheUpdatesOfEachWorkerWere) {
  auto options = small();
  options.workers = 3;
  const auto report = audit::run(audit::builtin(), options);
  ASSERT_EQ(report.staleness_by_worker.size(), 3u);
  uint64_t late = 0;
  for (const auto& histogram : report.staleness_by_worker) {
    EXPECT_EQ(std::accumulate(histogram.begin(), histogram.end(), uint64_t{0}), 12u) << "updates of one";
    late += std::accumulate(histogram.begin() + 1, histogram.end(), uint64_t{0});
  }
  EXPECT_EQ(late, std::accumulate(report.staleness.begin() + 1, report.staleness.end(), uint64_t{0}));
  EXPECT_THAT(report.json(), AllOf(HasSubstr("\"workers\": {"), HasSubstr("\"flagged\": ")));
}

TEST(Audit, UpdatesThatAreLaterThanEqualWorkersMakeThemAreFlagged) {
  const auto flagged = [](std::vector<uint64_t> staleness) {
    Report report;
    report.options.workers = 2;
    report.staleness = std::move(staleness);
    return report.unusually_late();
  };
  EXPECT_FALSE(flagged({}));
  EXPECT_FALSE(flagged({0, 0, 0, 0, 7}));  // by 4 = 2 N on the mean
  EXPECT_TRUE(flagged({0, 0, 0, 0, 7, 1}));
  std::vector<uint64_t> one_very_late(22);
  one_very_late[0] = 1000;
  one_very_late[20] = 1;
  EXPECT_FALSE(flagged(one_very_late));
  one_very_late[21] = 1;
  EXPECT_TRUE(flagged(one_very_late));
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

TEST(Audit, BatchesThatDependOnAnythingElseAreNoticed) {
  auto training = audit::builtin();
  training.make = [make = training.make](const Options& options) {
    auto learner = make(options);
    learner.batch = [draw = learner.batch, calls = std::make_shared<uint64_t>(0)](int worker, uint64_t) {
      return draw(worker, ++*calls * 100 + static_cast<uint64_t>(::getpid()) % 97);
    };
    return learner;
  };
  const auto report = audit::run(training, small());
  EXPECT_THAT(report.failed(), testing::Contains("D4"));
  EXPECT_THAT(report.find("D4")->note, HasSubstr("batches were others"));
}

TEST(Audit, WhatAWorkerThrowsIsThrownHere) {
  auto training = audit::builtin();
  training.make = [make = training.make](const Options& options) {
    auto learner = make(options);
    learner.gradients = [](const audit::Batch&) { throw std::runtime_error("no data today"); };
    return learner;
  };
  try {
    audit::run(training, small());
    FAIL() << "it had no gradients";
  } catch (const Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("no data today"));
  }
}

TEST(Audit, RefusesToForkWhileThreadsLive) {
  std::atomic<bool> go{false};
  std::thread thread([&] { go.wait(false); });
  EXPECT_THROW(audit::run(audit::builtin(), small()), Error);
  go = true;
  go.notify_all();
  thread.join();
}

TEST(Audit, RunsInAProcessThatWasForkedOff) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(audit::run(audit::builtin(), small()).passed() ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
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
