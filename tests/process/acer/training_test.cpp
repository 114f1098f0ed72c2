// `farad acer` as a whole: what it learns, and what it does when its processes are killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "acer/checkpoint.h"
#include "temporary_directory.h"
#include "unit/acer/program.h"

namespace farad::acer {
namespace {

using test::TemporaryDirectory;
using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> acer(std::vector<std::string> options, const std::string& out) {
  options.insert(options.begin(), FARAD_ACER);
  options.insert(options.end(), {"--out", out});
  return options;
}

/// The best a training reaches in that column, with the first of a few seeds that gets so far. What workers beside each
/// other learn with one seed depends on who comes first, so one run that fails shows nothing; broken code never gets
/// there.
double best_of_seeds(double wanted, const std::string& file, const std::string& name,
                     const std::vector<std::string>& options) {
  double best = -std::numeric_limits<double>::infinity();
  for (int seed = 1; seed <= 6 && best < wanted; ++seed) {
    TemporaryDirectory directory;
    auto all = options;
    all.insert(all.end(), {"--workers", "2", "--seed", std::to_string(seed)});
    const auto done = farad::acer::run(acer(std::move(all), directory.path()));
    EXPECT_EQ(done.code, 0) << done.said;
    if (done.code != 0) break;
    const auto values = column(directory.file(file), name);
    if (!values.empty()) best = std::max(best, *std::max_element(values.begin(), values.end()));
  }
  return best;
}

/// All-reduced, a seed decides everything, so these can be counted.
TEST(Acer, LearnsCatchWithMostSeeds) {
  int solved = 0;
  for (const char* seed : {"1", "2", "3"}) {
    TemporaryDirectory directory;
    const auto done = farad::acer::run(
        acer({"--env", "Catch", "--workers", "2", "--policy", "allreduced", "--steps", "8000", "--window", "9",
              "--seed", seed, "--evaluate-every", "2000", "--evaluation-episodes", "100"},
             directory.path()));
    ASSERT_EQ(done.code, 0) << done.said;
    const auto greedy = column(directory.file("evaluations.csv"), "greedy_mean");
    solved += *std::max_element(greedy.begin(), greedy.end()) >= 0.95;
  }
  EXPECT_GE(solved, 2);
}

TEST(Acer, LearnsCatchByWorkersThatDoNotWait) {
  EXPECT_GE(best_of_seeds(0.95, "evaluations.csv", "greedy_mean",
                          {"--env", "Catch", "--steps", "9000", "--window", "9", "--evaluate-every", "2000",
                           "--evaluation-episodes", "100"}),
            0.95);
}

TEST(Acer, GetsBetterAtCartPole) {
  // No skill at all is worth about 22.
  EXPECT_GE(best_of_seeds(80, "metrics.csv", "return_mean", {"--steps", "15000"}), 80);
}

TEST(Acer, LearnsToSwingAPendulumUp) {
  // No skill at all is worth about -1200; held up all the time would be 0.
  EXPECT_GE(best_of_seeds(-700, "evaluations.csv", "greedy_mean",
                          {"--env", "Pendulum-v1", "--steps", "36000", "--evaluate-every", "6000"}),
            -700);
}

TEST(Acer, LearnsFromAProgramOverAPipe) {
  EXPECT_GE(best_of_seeds(0.5, "evaluations.csv", "greedy_mean",
                          {"--env", std::string("pipe:python3 ") + FARAD_ACER_WALK, "--steps", "1500", "--replay-start",
                           "200", "--policy", "hogwild"}),
            0.5);
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

std::string all_of(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

TEST(Acer, ReplaysAndWritesDownWhatItDid) {
  TemporaryDirectory directory;
  const auto done = farad::acer::run(acer({"--workers", "2", "--steps", "6000"}, directory.path()));
  ASSERT_EQ(done.code, 0) << done.said;
  EXPECT_THAT(done.said, ContainsRegex("[0-9]+ steps, return +-?[0-9.]+, (evaluated +-?[0-9.]+, )?"
                                       " *[0-9]+ steps/s, +[0-9]+ updates/s, staleness [0-9]+\\.[0-9]+\n"));
  // Returns and lengths; evaluations; losses by part; gradients; importance weights; critic; trust region; staleness;
  // what was lost or torn; replay; rates. A column more or less breaks what others read of it.
  EXPECT_EQ(first_line(directory.file("metrics.csv")),
            "steps,updates,updates_off_policy,seconds,episodes,"
            "return_mean,return_min,return_max,length_mean,length_min,length_max,"
            "evaluation_version,evaluation_greedy,evaluation_sampled,"
            "policy_loss,correction_loss,critic_loss,entropy,gradient_norm,clipped_norm,"
            "ratio_mean,ratio_max,ratio_above_1,ratio_above_c,explained_variance,divergence,bounded,bound_effect,"
            "staleness_mean,staleness_p99,staleness_max,rolled_back,cut_off,lost,rejected,snapshots_torn,"
            "replay_fill,replay_age,steps_per_second,updates_per_second,bytes_moved");
  EXPECT_EQ(first_line(directory.file("workers.csv")), "steps,worker,steps_per_second,updates_per_second");
  EXPECT_EQ(first_line(directory.file("evaluations.csv")),
            "steps,seconds,version,greedy_mean,greedy_min,greedy_max,sampled_mean,sampled_min,sampled_max");
  std::istringstream names(first_line(directory.file("metrics.csv")));
  for (std::string name; std::getline(names, name, ',');)
    EXPECT_FALSE(column(directory.file("metrics.csv"), name).empty()) << name << " is never known";
  for (const char* name : {"return_by_steps.svg", "return_by_seconds.svg", "staleness.svg"}) {
    const auto svg = all_of(directory.file(name));
    EXPECT_THAT(svg, HasSubstr("<svg")) << name;
    EXPECT_THAT(svg, ContainsRegex("<polyline[^>]* points=\"[0-9]")) << name;
  }
  EXPECT_GT(column(directory.file("metrics.csv"), "return_mean").size(), 2);
  EXPECT_GT(column(directory.file("metrics.csv"), "updates_off_policy").back(), 100);
  EXPECT_TRUE(std::filesystem::exists(directory.file("config.json")));
}

class AcerUnder : public testing::TestWithParam<const char*> {};

TEST_P(AcerUnder, AWorkerThatIsKilledIsReplacedAndCtrlCEndsItInGoodOrder) {
  TemporaryDirectory directory;
  Program program(acer({"--workers", "2", "--steps", "100000000", "--report-every", "500", "--policy", GetParam()},
                       directory.path()));
  ASSERT_TRUE(program.hear("steps/s")) << program.said();
  const auto children = program.children();
  const bool managed = GetParam() == std::string("managed");
  ASSERT_EQ(children.size(), managed ? 4 : 3);  // The first one evaluates, and then there may be a manager.
  ::kill(children[managed ? 2 : 1], SIGKILL);
  ASSERT_TRUE(program.hear("worker 0 was ended by Killed; another process goes on")) << program.said();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(program.hear_anew("steps/s")) << program.said();
  ::kill(children[0], SIGKILL);
  ASSERT_TRUE(program.hear("the process that evaluates was ended by Killed; another one goes on")) << program.said();
  ::kill(program.process(), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.said();
  EXPECT_THAT(program.said(), HasSubstr("stopped after"));
  EXPECT_EQ(column(directory.file("evaluations.csv"), "version").back(),
            column(directory.file("metrics.csv"), "updates").back());
}

INSTANTIATE_TEST_SUITE_P(Policies, AcerUnder, testing::Values("locked", "hogwild", "allreduced", "managed", "averaged"),
                         [](const auto& policy) { return std::string(policy.param); });

TEST(Acer, TellsWhetherItSolvedItsEnvironment) {
  TemporaryDirectory directory;
  // One step is enough to be as good as that, or never.
  const auto program = [&](const char* goal) {
    const auto path = directory.file("walk.py");
    std::ofstream(path) << "goal = '" << goal << "'\nexec(open('" << FARAD_ACER_WALK
                        << "').read().replace('\"solved\": 0.9', '\"solved\": ' + goal))\n";
    return farad::acer::run(acer({"--env", "pipe:python3 " + path, "--workers", "1", "--steps", "60", "--replay-ratio",
                                  "0", "--evaluation-episodes", "2"},
                                 directory.file("out")));
  };
  const auto solved = program("-100"), missed = program("100");
  EXPECT_THAT(solved.said, ContainsRegex("solved: the first greedy evaluation of -100 or more was after [0-9]+ steps"));
  EXPECT_THAT(missed.said, HasSubstr("not solved: no greedy evaluation was 100 or more"));
}

/// How many updates the workers of a training have computed, by what it counted last.
int64_t updates_computed(const TemporaryDirectory& out, int workers) {
  const auto board = std::make_unique<Board>();
  load_counts(Checkpoint::counts(Checkpoint(out.path()).last()), *board, workers);
  int64_t sum = 0;
  for (const auto& tally : board->tallies) sum += tally.on_policy + tally.off_policy;
  return sum;
}

TEST(Acer, AManagerAppliesEachUpdateOnceAndAveragesAreOfSixteenOfEach) {
  for (const std::string policy : {"managed", "averaged"}) {
    TemporaryDirectory directory;
    const auto done = farad::acer::run(acer({"--env", "Catch", "--workers", "2", "--steps", "3000", "--window", "9",
                                             "--policy", policy, "--evaluate-every", "0"},
                                            directory.path()));
    ASSERT_EQ(done.code, 0) << done.said;
    const auto computed = static_cast<double>(updates_computed(directory, 2));
    const double versions = column(directory.file("metrics.csv"), "updates").back();
    EXPECT_EQ(column(directory.file("evaluations.csv"), "version").back(), versions);  // It is of all they have done.
    if (policy == "managed") {
      EXPECT_EQ(versions, computed);
    } else {
      EXPECT_NEAR(versions, computed / (2 * 16), 0.2 * versions + 2);  // One goes on alone when the other has ended.
    }
  }
}

TEST(Acer, AManagerThatIsKilledIsReplaced) {
  TemporaryDirectory directory;
  Program program(acer({"--workers", "2", "--steps", "100000000", "--policy", "managed", "--report-every", "500",
                        "--checkpoint-every", "1000"},
                       directory.path()));
  ASSERT_TRUE(program.hear("steps/s")) << program.said();
  const auto children = program.children();
  ASSERT_EQ(children.size(), 4);  // One evaluates, one manages.
  ::kill(children[1], SIGKILL);
  ASSERT_TRUE(program.hear("the process that applies updates was ended by Killed; another one goes on"));
  ::kill(program.process(), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.said();
  EXPECT_THAT(program.said(), HasSubstr("stopped after"));
}

TEST(Acer, SaysWhatIsWrongWithItsOptions) {
  TemporaryDirectory directory;
  const auto complaint = [&](std::vector<std::string> options) {
    const auto done = farad::acer::run(acer(std::move(options), directory.path()));
    EXPECT_NE(done.code, 0);
    return done.said;
  };
  EXPECT_THAT(complaint({"--env", "Pong"}), HasSubstr("there is no environment \"Pong\""));
  EXPECT_THAT(complaint({"--env", "Pendulum-v1", "--deviation", "0"}), HasSubstr("needs a deviation"));
  EXPECT_THAT(complaint({"--policy", "free"}), HasSubstr("there are locked, hogwild"));
  EXPECT_THAT(complaint({"--replay-start", "60000"}), HasSubstr("replay would never start"));
  EXPECT_THAT(complaint({"--replay-ratio", "1e9"}), HasSubstr("a replay ratio is 0 to 100"));
  EXPECT_THAT(complaint({"--lr", "nan"}), HasSubstr("learning rate"));
  EXPECT_THAT(complaint({"--workers", "0"}), HasSubstr("--workers"));
  EXPECT_THAT(complaint({"--inject", "gremlins"}),
              HasSubstr("there are none, accumulate, freeze-first, stale-average"));
  EXPECT_THAT(complaint({"--inject", "accumulate", "--resume"}), HasSubstr("cannot --resume"));
  EXPECT_THAT(complaint({"--env", "pipe:exit 1", "--steps", "2000"}), HasSubstr("it has ended"));
}

}  // namespace
}  // namespace farad::acer
