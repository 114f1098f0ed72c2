// farad acer: several processes learn to act in one environment, by ACER, on one model in shared memory.

#include <farad/error.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "acer/audit.h"
#include "acer/checkpoint.h"
#include "acer/compare.h"
#include "acer/environments/registry.h"
#include "acer/owner_training.h"
#include "acer/schedule.h"
#include "acer/training.h"
#include "arithmetic/arithmetic.h"

namespace farad::acer {
namespace {

constexpr int usage_error = 2, interrupted = 130;

struct Arguments {
  Settings settings;
  std::string policy = "locked", optimizer = "rmsprop", statistics = "probabilities", inject = "none";
  bool no_trust_region = false;
  double patience = 30;
  std::string schedule;
};

CLI::App* add_plot(CLI::App& app, CompareOptions& options) {
  auto* plot = app.add_subcommand("plot", "Compare runs, with bands of 95 % confidence");
  plot->add_option("runs", options.groups, "NAME=DIRECTORY,DIRECTORY,...: runs to be shown as one curve")->required();
  plot->add_option("--metric", options.metric, "A column of evaluations.csv or metrics.csv")->capture_default_str();
  plot->add_option("--over", options.over, "steps or seconds")->capture_default_str();
  plot->add_option("--solved", options.solved, "Also tell when runs were first at or above this");
  plot->add_option("--out", options.out, "The picture")->capture_default_str();
  return plot;
}

void add_options(CLI::App& app, Arguments& arguments) {
  auto& s = arguments.settings;
  auto& rules = s.rules;
  std::string names;
  for (const auto& name : environment_names()) names += name + ", ";
  app.add_option("--env", s.environment, names + "or pipe:COMMAND for a program")->capture_default_str();
  app.add_option("--workers", s.workers, "Processes that act and learn")
      ->check(CLI::Range(1, Board::most_workers))
      ->capture_default_str();
  app.add_option("--steps", s.steps, "Steps in the environment, of all workers together")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--policy", arguments.policy,
                 "How updates come together: locked, hogwild, allreduced, managed, averaged")
      ->capture_default_str();
  app.add_flag(
      "--owner", s.owner,
      "Over machines: the first member of the group keeps the parameters, all others are workers and call it.\n"
      "Started as `farad run -n N -- farad-acer --owner ...`, or by another launcher");
  app.add_option("--patience", arguments.patience,
                 "With --owner: seconds to wait for a worker to be started again when all are lost, and at the end\n"
                 "for workers to hear that it is over")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Decides everything but the order of updates")->capture_default_str();
  app.add_option("--out", s.out, "Directory for what it writes")->capture_default_str();

  const std::string learning = "Learning";
  const auto option = [&](const char* name, auto& value, const char* what) {
    app.add_option(name, value, what)->capture_default_str()->group(learning);
  };
  option("--hidden", s.hidden, "Widths of the layers below policy and Q");
  option("--window", s.window, "Steps of an update, at most");
  option("--replay-ratio", s.replay_ratio, "Mean number of updates from the replay for each from new steps");
  option("--replay-windows", s.replay_windows, "Windows in an update from the replay");
  option("--replay-capacity", s.replay_capacity, "Steps that all workers together keep");
  option("--replay-start", s.replay_start, "Steps of all workers together before anything is replayed");
  option("--optimizer", arguments.optimizer, "rmsprop or adam, shared by all workers");
  option("--lr", s.learning_rate, "Learning rate");
  option("--discount", rules.discount, "What a reward one step later is worth");
  option("--truncation", rules.truncation, "c: where importance weights are cut");
  option("--trust", rules.trust, "delta: the size of the trust region");
  app.add_flag("--no-trust-region", arguments.no_trust_region, "Do without")->group(learning);
  option("--statistics", arguments.statistics, "What the trust region is measured in: probabilities or logits");
  option("--averaging", s.averaging, "alpha: how much of the average policy stays at each update");
  option("--entropy", rules.entropy, "Weight of the entropy");
  option("--critic", rules.critic, "Weight of the critic's error");
  option("--largest-gradient", rules.largest_gradient, "Longer gradients are cut to this; 0: never");
  option("--reward-scale", s.reward_scale, "What is learned from is so many times the reward");

  const std::string amounts = "Learning amounts";
  app.add_option("--deviation", rules.deviation, "Of the policy, where 1 is the largest amount")
      ->capture_default_str()
      ->group(amounts);
  app.add_option("--advantage-samples", rules.advantage_samples, "n: actions that an advantage is measured against")
      ->capture_default_str()
      ->group(amounts);

  const std::string reporting = "Reporting";
  app.add_option("--evaluate-every", s.evaluate_every, "Steps between evaluations; 0: only at the end")
      ->capture_default_str()
      ->group(reporting);
  app.add_option("--evaluation-episodes", s.evaluation_episodes, "Episodes of an evaluation, greedy and sampled each")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(reporting);
  app.add_option("--report-every", s.report_every, "Steps between rows of metrics")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(reporting);
  app.add_option("--checkpoint-every", s.checkpoint_every, "Steps between checkpoints; 0: only at the end")
      ->capture_default_str()
      ->group(reporting);
  app.add_flag("--resume", s.resume, "Go on from the last checkpoint, with the same options")->group(reporting);
  app.add_option("--replay-schedule", arguments.schedule,
                 "Make the updates of the run in this directory again, in the same order, in one process, with the\n"
                 "same options, and compare what comes of it with its checkpoint")
      ->type_name("DIRECTORY")
      ->group(reporting);
  app.add_option("--inject", arguments.inject,
                 "Train with a defect that the audit finds: accumulate, freeze-first, stale-average")
      ->capture_default_str()
      ->group(reporting);
  app.footer(
      "Writes config.json, metrics.csv, workers.csv, evaluations.csv, plots (SVG), a checkpoint, and events for\n"
      "TensorBoard. Ctrl-C ends it in good order and returns 130; a second one ends it at once. Returns 1 if a worker\n"
      "fails; one that is killed is replaced. With --owner checkpoints are of the model alone: --resume begins with\n"
      "empty replays; a worker that is lost takes up its work again if whoever started it starts it again (farad run\n"
      "ends all instead); one that fails does not.");
}

template <class Value>
Value one_of(const std::string& option, const std::string& name,
             std::initializer_list<std::pair<const char*, Value>> all) {
  std::string names;
  for (const auto& [known, value] : all) {
    if (name == known) return value;
    names += (names.empty() ? "" : " or ") + std::string(known);
  }
  throw Error("[acer] " + option + " is " + names + ", not \"" + name + "\"");
}

/// What was not given becomes what suits amounts, if those are what the environment is acted in by.
void suit_amounts(const CLI::App& app, Settings& settings) {
  const auto spec = make_environment(settings.environment)->spec();
  if (spec.amounts == 0) return;
  const auto unless_given = [&](const char* option, auto& value, auto suitable) {
    if (app.count(option) == 0) value = suitable;
  };
  unless_given("--truncation", settings.rules.truncation, 5.0);
  unless_given("--averaging", settings.averaging, 0.995);
  unless_given("--reward-scale", settings.reward_scale, spec.reward_scale);
}

/// Those of the options that were given.
std::vector<std::string> given_of(std::initializer_list<const char*> options, const CLI::App& app) {
  std::vector<std::string> given;
  for (const char* option : options) {
    if (app.count(option) > 0) given.push_back(option);
  }
  return given;
}

/// What an owner decides by itself, or does not know.
void refuse_beside_owner(const CLI::App& app) {
  for (const auto& option : given_of({"--workers", "--policy", "--replay-schedule"}, app)) {
    throw Error("[acer] " + option +
                " does not go with --owner: each member of the group but the first is a worker, their updates are "
                "applied one at a time, and none are logged");
  }
}

Settings settings_of(const CLI::App& app, Arguments& arguments) {
  auto& settings = arguments.settings;
  suit_amounts(app, settings);
  settings.policy = policy_named(arguments.policy);
  settings.inject = fault_named(arguments.inject);
  settings.optimizer = one_of<Optimizer>("--optimizer", arguments.optimizer,
                                         {{"rmsprop", Optimizer::RMSprop}, {"adam", Optimizer::Adam}});
  settings.rules.statistics =
      one_of<Statistics>("--statistics", arguments.statistics,
                         {{"probabilities", Statistics::Probabilities}, {"logits", Statistics::Logits}});
  settings.rules.trust_region = !arguments.no_trust_region;
  check(settings);
  if (settings.owner) refuse_beside_owner(app);
  return settings;
}

/// Shared by all processes, so that it does not matter which of them the signal meets.
Board* board = nullptr;

/// The first Ctrl-C ends the training in good order; the next one ends the process.
void stop_on_signals() {
  board = &Board::create();
  struct sigaction action = {};
  action.sa_handler = [](int) { board->stop.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

void tell(const Settings& settings, const Result& result) {
  const auto& last = result.evaluations.back();
  std::printf("\n%s after %ld steps and %lu updates, %.1f s: %.0f steps/s, %.0f updates/s\n",
              result.interrupted ? "stopped" : "done", static_cast<long>(result.steps),
              static_cast<unsigned long>(result.updates), result.seconds,
              static_cast<double>(result.steps) / result.seconds, static_cast<double>(result.updates) / result.seconds);
  std::printf("%d episodes with version %lu: %.2f greedy (%.2f to %.2f), %.2f sampled (%.2f to %.2f)\n",
              settings.evaluation_episodes, static_cast<unsigned long>(last.version), last.greedy.mean,
              last.greedy.least, last.greedy.most, last.sampled.mean, last.sampled.least, last.sampled.most);
  if (result.solved_after) {
    std::printf("solved: the first greedy evaluation of %g or more was after %.0f steps\n", *result.goal,
                *result.solved_after);
  } else if (result.goal) {
    std::printf("not solved: no greedy evaluation was %g or more\n", *result.goal);
  }
  std::printf("Files: %s\n", settings.out.c_str());
}

int run(const Settings& settings) {
  stop_on_signals();
  std::printf("%s, %d workers, %s, %ld steps, seed %lu\n", settings.environment.c_str(), settings.workers,
              name_of(settings.policy).c_str(), static_cast<long>(settings.steps),
              static_cast<unsigned long>(settings.seed));
  const auto result = train(settings, *board);
  tell(settings, result);
  return result.interrupted ? interrupted : 0;
}

int run_with_owner(const Settings& settings, double patience) {
  stop_on_signals();
  const auto result =
      train_with_owner(settings, *board, std::chrono::milliseconds(static_cast<int64_t>(1000 * patience)));
  if (result) tell(settings, *result);
  return result && result->interrupted ? interrupted : 0;
}

/// 0 if the same came of it.
int replay(const Settings& settings, const std::string& directory) {
  const auto schedule = read_schedule(directory);
  const auto spec = make_environment(settings.environment)->spec();
  const auto shape = settings.shape(spec);
  const auto name = "farad-acer-" + std::to_string(::getpid());
  SharedModel recorded(name + "-recorded", shape, settings), replayed(name + "-replayed", shape, settings);
  const auto saved = Checkpoint::model(Checkpoint(directory).last());
  recorded.model.load(saved);
  replay_schedule(settings, schedule, replayed);
  const auto beside = (std::filesystem::temp_directory_path() / (name + "-replayed")).string();
  replayed.model.save(beside);
  const bool same = same_to_the_bit(saved, beside);
  std::filesystem::remove_all(beside);
  const double apart = difference(recorded.model.snapshot(), replayed.model.snapshot());
  std::printf("%lu updates of %zu processes made again: ", static_cast<unsigned long>(schedule.updates()),
              schedule.lives.size());
  if (same) {
    std::printf("equal to the bit\n");
  } else if (apart == 0) {
    std::printf("values are equal, what the optimizer remembers is not\n");
  } else {
    std::printf("values differ by up to %.3g\n", apart);
  }
  return same ? 0 : 1;
}

}  // namespace
}  // namespace farad::acer

int main(int argc, char** argv) {
  using namespace farad::acer;
  CLI::App app("Sample Efficient Actor-Critic with Experience Replay, by several processes on one model", "farad acer");
  Arguments arguments;
  CompareOptions comparison;
  add_options(app, arguments);
  const auto* plot = add_plot(app, comparison);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_error;
  }
  try {
    if (plot->parsed()) {
      compare(comparison);
      return 0;
    }
    const auto settings = settings_of(app, arguments);
    farad::arithmetic::use_one_core_well(argv);
    const auto audited = training_to_audit(settings, given_of({"--workers", "--policy"}, app));
    if (const auto code = farad::audit::requested(audited)) return *code;
    if (settings.owner) return run_with_owner(settings, arguments.patience);
    return arguments.schedule.empty() ? run(settings) : replay(settings, arguments.schedule);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "farad acer: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farad acer: %s\n", error.what());
  }
  return 1;
}
