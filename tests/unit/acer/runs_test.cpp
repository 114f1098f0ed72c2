// Runs that are gone on with, and made again.

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "acer/checkpoint.h"
#include "acer/schedule.h"
#include "temporary_directory.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::Not;

/// Every file of the model's checkpoint.
std::map<std::string, std::string> model_of(const std::string& out) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out + "/checkpoint/model")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    files[entry.path().filename()] = all.str();
  }
  EXPECT_FALSE(files.empty());
  return files;
}

/// Environments and optimizers that differ in what has to be remembered.
const std::vector<std::vector<std::string>> kinds{
    {}, {"--optimizer", "adam", "--lr", "0.0003"}, {"--env", "Pendulum-v1", "--evaluation-episodes", "2"}};

TEST(Checkpoint, OneWorkerGoesOnToTheBit) {
  for (const auto& kind : kinds) {
    TemporaryDirectory whole, halves;
    const auto train = [&](const char* steps, const std::string& out, bool resume) {
      std::vector<std::string> options{"--workers", "1", "--steps", steps, "--replay-start", "300", "--out", out};
      options.insert(options.end(), kind.begin(), kind.end());
      if (resume) options.push_back("--resume");
      const auto done = acer(options);
      ASSERT_EQ(done.code, 0) << done.said;
    };
    train("2000", whole.path(), false);
    train("900", halves.path(), false);
    EXPECT_NE(model_of(halves.path()), model_of(whole.path()));
    train("2000", halves.path(), true);
    EXPECT_EQ(model_of(halves.path()), model_of(whole.path()));
    EXPECT_EQ(column(halves.file("metrics.csv"), "steps").back(), column(whole.file("metrics.csv"), "steps").back());
  }
}

TEST(Checkpoint, WhatCameAfterItIsForgottenAndSecondsAreCountedOn) {
  TemporaryDirectory directory;
  const auto train = [&](const char* steps, std::vector<std::string> more) {
    more.insert(more.begin(), {"--env", "Catch", "--workers", "2", "--steps", steps, "--replay-start", "300",
                               "--report-every", "200", "--evaluate-every", "300", "--out", directory.path()});
    const auto done = acer(std::move(more));
    ASSERT_EQ(done.code, 0) << done.said;
  };
  train("900", {});
  const auto board = std::make_unique<Board>();
  load_counts(Checkpoint::counts(Checkpoint(directory.path()).last()), *board, 2);
  std::map<std::string, size_t> rows;
  // As a run leaves them that has gone on and then was killed before it saved anything.
  for (const char* file : {"metrics.csv", "workers.csv", "evaluations.csv"}) {
    rows[file] = column(directory.file(file), "steps").size();
    std::ofstream(directory.file(file), std::ios::app) << "999999,999999,1,999999,1,1,1,1,1\n9999";
  }
  std::ofstream(directory.file("best.pt")) << "of a step that was made anew";
  train("2000", {"--resume"});
  for (const auto& [file, count] : rows) {
    const auto steps = column(directory.file(file), "steps");
    EXPECT_TRUE(std::ranges::is_sorted(steps)) << file;
    EXPECT_LT(steps.back(), 3000) << file;
    EXPECT_GT(steps.size(), count) << file;
    if (file == "workers.csv") continue;
    const auto seconds = column(directory.file(file), "seconds");
    EXPECT_TRUE(std::ranges::is_sorted(seconds)) << file;
    EXPECT_LE(seconds.at(count - 1), board->seconds) << file;
    EXPECT_GE(seconds.at(count), board->seconds) << file;
  }
  std::ostringstream best;
  best << std::ifstream(directory.file("best.pt")).rdbuf();
  EXPECT_THAT(best.str(), Not(HasSubstr("anew")));
}

TEST(Checkpoint, NoWorkerThatBeginsAnewIsAnEarlierOneAgain) {
  TemporaryDirectory directory;
  const auto lives = [&] {
    const auto board = std::make_unique<Board>();
    load_counts(Checkpoint::counts(Checkpoint(directory.path()).last()), *board, 2);
    return std::vector<int>{board->tallies[0].life, board->tallies[1].life};
  };
  const auto train = [&](const char* steps, bool resume) {
    std::vector<std::string> all{
        FARAD_ACER, "--env",          "Catch", "--workers",        "2", "--steps", steps,           "--report-every",
        "500",      "--replay-start", "300",   "--evaluate-every", "0", "--out",   directory.path()};
    if (resume) all.push_back("--resume");
    return all;
  };
  // The first worker is killed twice, once in each part.
  for (const auto& wanted : {std::vector<int>{1, 0}, {3, 1}}) {
    Program program(train("100000000", wanted[1] > 0));
    ASSERT_TRUE(program.hear("steps/s")) << program.said();
    ::kill(program.children().at(1), SIGKILL);  // The first child evaluates.
    ASSERT_TRUE(program.hear("worker 0 was ended by Killed; another process goes on")) << program.said();
    ASSERT_TRUE(program.hear_anew("steps/s")) << program.said();
    ::kill(program.process(), SIGINT);
    EXPECT_EQ(program.wait(), 130) << program.said();
    EXPECT_EQ(lives(), wanted);
  }
  // One whose part is missing.
  ASSERT_TRUE(std::filesystem::remove(Checkpoint::worker(directory.file("checkpoint"), 1)));
  const auto board = std::make_unique<Board>();
  load_counts(Checkpoint::counts(Checkpoint(directory.path()).last()), *board, 2);
  const auto done = run(train(std::to_string(board->steps + 500).c_str(), true));
  EXPECT_EQ(done.code, 0) << done.said;
  EXPECT_EQ(lives(), (std::vector<int>{4, 2}));
}

TEST(Checkpoint, AMissingPartIsToldOrEndsWhatGoesOnToTheBit) {
  for (const int workers : {1, 2}) {
    TemporaryDirectory directory;
    const auto train = [&](const char* steps, std::vector<std::string> more) {
      more.insert(more.begin(), {"--workers", std::to_string(workers), "--env", "Catch", "--steps", steps,
                                 "--replay-start", "300", "--evaluate-every", "0", "--out", directory.path()});
      return acer(std::move(more));
    };
    const auto begun = train("600", {});
    ASSERT_EQ(begun.code, 0) << begun.said;
    const auto part = Checkpoint::worker(directory.file("checkpoint"), workers - 1);
    ASSERT_TRUE(std::filesystem::remove(part));
    const auto resumed = train("900", {"--resume"});
    EXPECT_EQ(resumed.code, workers == 1 ? 1 : 0) << resumed.said;
    EXPECT_THAT(resumed.said, HasSubstr(part + " is missing"));
  }
}

TEST(Schedule, AnAsynchronousRunIsMadeAgainToTheBit) {
  for (const auto& kind : kinds) {
    TemporaryDirectory directory;
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"--workers", "3", "--steps", "1500", "--replay-start", "300"});
      more.insert(more.end(), kind.begin(), kind.end());
      return acer(std::move(more));
    };
    const auto done = with({"--seed", "5", "--checkpoint-every", "500", "--out", directory.path()});
    ASSERT_EQ(done.code, 0) << done.said;
    const auto again = with({"--seed", "5", "--replay-schedule", directory.path()});
    EXPECT_EQ(again.code, 0) << again.said;
    EXPECT_THAT(again.said, HasSubstr("equal to the bit"));
    const auto other = with({"--seed", "6", "--replay-schedule", directory.path()});
    EXPECT_EQ(other.code, 1);
    EXPECT_THAT(other.said, HasSubstr("values differ"));
  }
}

TEST(Schedule, OfARunWhoseWritesRaceItIsToldHowFarItIsFromTheRun) {
  TemporaryDirectory directory;
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--workers", "3", "--steps", "1500", "--replay-start", "300", "--policy", "hogwild",
                               "--evaluate-every", "0"});
    return acer(std::move(more));
  };
  const auto done = with({"--out", directory.path()});
  ASSERT_EQ(done.code, 0) << done.said;
  const auto again = with({"--replay-schedule", directory.path()});
  // Whether any two have met at one element, nobody decides.
  if (again.code == 0) {
    EXPECT_THAT(again.said, HasSubstr("equal to the bit"));
  } else {
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.said, testing::ContainsRegex("updates of 3 processes made again: (values differ by up to [0-9]|"
                                                   "values are equal, what the optimizer remembers is not)"));
  }
}

/// A model by the same values and gradients of that size, which its steps leave where they are.
void save_after_steps(double gradient, const std::string& directory) {
  Settings settings;
  SharedModel shared("runs-test-" + std::to_string(::getpid()), {2, {3}, 2}, settings);
  const double rate = shared.model.lr();
  shared.model.set_lr(0);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : shared.network->parameters()) gradients.push_back(at::full_like(parameter, gradient));
  shared.model.step(gradients);
  shared.model.set_lr(rate);
  shared.model.save(directory);
}

TEST(Schedule, WhatTheOptimizerRemembersHasToBeTheSameToo) {
  TemporaryDirectory directory;
  for (const auto& [name, gradient] : {std::pair("one", 1.0), {"same", 1.0}, {"other", 2.0}})
    save_after_steps(gradient, directory.file(name));
  EXPECT_TRUE(same_to_the_bit(directory.file("one"), directory.file("same")));
  EXPECT_FALSE(same_to_the_bit(directory.file("one"), directory.file("other")));
}

TEST(Schedule, AValueThatIsNoNumberIsNotEqual) {
  shared::Model::Snapshot one{.version = 1, .tensors = {{"a", at::zeros({2})}, {"b", at::zeros({2})}}, .average = {}};
  auto other = one;
  EXPECT_EQ(difference(one, other), 0);
  other.tensors[0].second = at::full({2}, std::nan(""));
  EXPECT_TRUE(std::isnan(difference(one, other)));
}

/// A program for the environment, as walk.py is one. Who first plays it for so long is killed there: while it waits
/// for what its action came to, and so never between an update and its line in the log.
std::string deadly_walk(const TemporaryDirectory& directory) {
  const auto path = directory.file("deadly_walk.py");
  std::ofstream(path) << "killed, walk = '" << directory.file("killed") << "', '" << FARAD_ACER_WALK << "'\n"
                      << R"(
import os, signal, sys

def is_first():
    try:
        return open(killed, "x") is not None
    except FileExistsError:
        return False

def lines(requests):
    for count, line in enumerate(requests):
        if count == 150 and is_first():
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        yield line

sys.stdin = lines(sys.stdin)
exec(open(walk).read())
)";
  return "pipe:exec python3 " + path;
}

TEST(Schedule, ARunInWhichAWorkerWasReplacedIsMadeAgainToTheBit) {
  TemporaryDirectory directory;
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--env", deadly_walk(directory), "--workers", "2", "--steps", "1500", "--replay-start",
                               "200", "--hidden", "16", "--evaluate-every", "0"});
    return acer(std::move(more));
  };
  const auto done = with({"--out", directory.file("out")});
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_THAT(done.said, HasSubstr("was ended by Killed; another process goes on"));
  const auto again = with({"--replay-schedule", directory.file("out")});
  EXPECT_EQ(again.code, 0) << again.said;
  EXPECT_THAT(again.said, HasSubstr("of 3 processes made again: equal to the bit"));
}

TEST(Schedule, IsOfTheRunThatTheDirectoryIsOf) {
  TemporaryDirectory directory;
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--env", "Catch", "--workers", "2", "--replay-start", "300", "--evaluate-every", "0"});
    return acer(std::move(more));
  };
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--out", directory.path()});
    const auto done = with(std::move(more));
    ASSERT_EQ(done.code, 0) << done.said;
  };
  for (const auto& then :
       {std::vector<std::string>{"--steps", "600", "--policy", "managed"}, {"--steps", "900", "--resume"}}) {
    train({"--steps", "600"});
    train(then);
    const auto again = with({"--replay-schedule", directory.path()});
    EXPECT_EQ(again.code, 1) << again.said;
    EXPECT_THAT(again.said, HasSubstr("has no log of a training"));
  }
}

TEST(AllReduced, ASeedDecidesEverything) {
  TemporaryDirectory one, other;
  for (const auto& out : {one.path(), other.path()}) {
    const auto done =
        acer({"--workers", "2", "--steps", "1200", "--replay-start", "300", "--policy", "allreduced", "--out", out});
    ASSERT_EQ(done.code, 0) << done.said;
  }
  EXPECT_EQ(model_of(one.path()), model_of(other.path()));
}

TEST(AllReduced, ARunThatWasKilledGoesOnFromItsLastCheckpointToTheBit) {
  TemporaryDirectory whole, halves;
  const std::vector<std::string> options{"--workers", "2",          "--replay-start",   "300",
                                         "--policy",  "allreduced", "--evaluate-every", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  {
    auto all = with({"--steps", "100000000", "--checkpoint-every", "1000", "--out", halves.path()});
    all.insert(all.begin(), FARAD_ACER);
    Program program(std::move(all));
    ASSERT_TRUE(program.hear("saved at")) << program.said();
  }  // It is killed.
  const auto board = std::make_unique<Board>();
  load_counts(Checkpoint::counts(Checkpoint(halves.path()).last()), *board, 2);
  ASSERT_GT(board->steps, 0);
  const auto steps = std::to_string(board->steps + 3000);
  const auto resumed = acer(with({"--steps", steps, "--resume", "--out", halves.path()}));
  ASSERT_EQ(resumed.code, 0) << resumed.said;
  EXPECT_THAT(resumed.said, HasSubstr("goes on after " + std::to_string(board->steps) + " steps"));
  const auto done = acer(with({"--steps", steps, "--out", whole.path()}));
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_EQ(model_of(halves.path()), model_of(whole.path()));
}

TEST(AllReduced, ARunThatWasStoppedOrHasEndedGoesOnToTheBit) {
  TemporaryDirectory whole, parts;
  const auto train = [](const TemporaryDirectory& out, int64_t steps, std::vector<std::string> more) {
    std::vector<std::string> all{"--workers", "2", "--replay-start", "300", "--policy", "allreduced"};
    all.insert(all.end(), {"--evaluate-every", "0", "--steps", std::to_string(steps), "--out", out.path()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto steps_made = [&] {
    const auto board = std::make_unique<Board>();
    load_counts(Checkpoint::counts(Checkpoint(parts.path()).last()), *board, 2);
    return board->steps.load();
  };
  auto endless = train(parts, 100'000'000, {"--report-every", "500"});
  endless.insert(endless.begin(), FARAD_ACER);
  Program program(std::move(endless));
  ASSERT_TRUE(program.hear("steps/s")) << program.said();
  ::kill(program.process(), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.said();
  int64_t steps = 0;
  for (int part = 0; part < 2; ++part) {  // First from where it was stopped, then from where it has ended.
    steps = steps_made() + 1500;
    const auto done = acer(train(parts, steps, {"--resume"}));
    ASSERT_EQ(done.code, 0) << done.said;
  }
  const auto done = acer(train(whole, steps, {}));
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_EQ(model_of(parts.path()), model_of(whole.path()));
}

}  // namespace
}  // namespace farad::acer
