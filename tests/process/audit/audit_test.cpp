// The audit of trainings that are right, and of some that are not.

#include <ATen/ops/equal.h>
#include <farad/audit.h>
#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "audit/board.h"
#include "audit/builtin.h"
#include "audit/replay.h"
#include "audit/report.h"
#include "process/audit/small.h"

namespace farad::test {
namespace {

using audit::Options;
using audit::Outcome;
using audit::Report;
using audit::Verdict;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST(Audit, WhatManagedBringsTogetherIsOneProcessOnAllSamples) {
  auto options = small(shared::Policy::Managed);
  options.workers = 3;
  auto training = audit::builtin();
  training.checks.push_back([](const audit::Evidence& evidence, const Options&) {
    size_t most = 0, first = 0;
    for (const auto& update : evidence.applied) {
      most = std::max(most, update.parts.size());
      const bool begins =
          std::all_of(update.parts.begin(), update.parts.end(), [](auto& p) { return p.sequence == 1; });
      if (begins) first = std::max(first, update.parts.size());
    }
    return audit::finding("X1", "all are brought together", most == 3 && first == 3 ? 0 : 1, 0);
  });
  const auto report = audit::run(training, options);
  EXPECT_TRUE(report.passed()) << report.table();
  EXPECT_EQ(report.find("X1")->outcome, Outcome::Passed) << "an update of three gradients, and the first ones in one";
}

TEST(Audit, OfALargeModelTheGradientsOfAllWorkersAreInTheSampleOrOfNone) {
  constexpr int workers = 3, rounds = 100;
  audit::Board board({workers, rounds, 4'000'000, c10::ScalarType::Double, false});  // Memory that nobody touches.
  int whole = 0;
  for (uint64_t sequence = 1; sequence <= rounds; ++sequence) {
    int kept = 0;
    for (int worker = 0; worker < workers; ++worker) kept += board.in_sample(worker, sequence);
    EXPECT_TRUE(kept == 0 || kept == workers) << "round " << sequence;
    whole += kept == workers;
  }
  EXPECT_GE(whole * workers, 20);
  EXPECT_LT(whole, rounds);
  EXPECT_TRUE(board.in_sample(0, 1));
}

/// The built-in training, of which nobody says what its gradients are compared with.
audit::Training without_reference() {
  auto training = audit::builtin();
  training.make = [make = training.make](const Options& options) {
    auto learner = make(options);
    learner.reference = {};
    return learner;
  };
  return training;
}

TEST(Audit, AReferenceMayBeRegisteredWhileTheLearnerIsMade) {
  auto training = without_reference();
  EXPECT_EQ(audit::run(training, small()).find("A1")->outcome, Outcome::Skipped);
  training.make = [made = training.make](const Options& options) {
    audit::reference(
        [by_hand = audit::builtin().make(options).reference](const audit::Batch& batch) { return by_hand(batch); });
    return made(options);
  };
  // It computes with the first values of another copy, which is right at the beginning and nowhere else.
  EXPECT_EQ(audit::run(training, small()).find("A1")->outcome, Outcome::Failed);
  EXPECT_THROW(audit::reference([](const audit::Batch&) { return std::vector<at::Tensor>(); }), Error);
}

TEST(Audit, AReferenceOfTheProgramIsThatOfEveryLearnerWithoutOne) {
  const auto by_hand = [](const std::vector<at::Tensor>& parameters, const audit::Batch& batch) {
    auto learner = audit::builtin().make(small());
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) learner.tensors[i].tensor.copy_(parameters[i]);
    return learner.reference(batch);
  };
  audit::reference(by_hand);
  const auto report = audit::run(without_reference(), small());
  EXPECT_EQ(report.find("A1")->outcome, Outcome::Passed) << report.table();
  audit::reference([&](const std::vector<at::Tensor>& parameters, const audit::Batch& batch) {
    auto gradients = by_hand(parameters, batch);
    for (auto& one : gradients) one.mul_(2);
    return gradients;
  });
  EXPECT_EQ(audit::run(without_reference(), small()).find("A1")->outcome, Outcome::Failed);
  EXPECT_EQ(audit::run(audit::builtin(), small()).find("A1")->outcome, Outcome::Passed) << "that has one of its own";
  audit::reference(std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, const audit::Batch&)>());
  EXPECT_EQ(audit::run(without_reference(), small()).find("A1")->outcome, Outcome::Skipped);
}

TEST(Audit, TheWorseOfTwoIsNoNumberIfOneIsNone) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(audit::worse(1, 2), 2);
  EXPECT_TRUE(std::isnan(audit::worse(none, 2)));
  EXPECT_TRUE(std::isnan(audit::worse(2, none)));
  EXPECT_EQ(audit::finding("X1", "a check over many", audit::worse(0, none), 1e9).outcome, Outcome::Failed);
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

}  // namespace
}  // namespace farad::test
