#include "demo/show.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>
#include <farad/error.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "demo/curves.h"
#include "demo/files.h"

namespace farad::demo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// One line that is written over and over on a terminal, and now and then elsewhere.
class Progress {
 public:
  Progress(const char* what, int64_t steps, int64_t tokens) : what_(what), steps_(steps), tokens_(tokens) {}

  void show(int64_t done, double loss, double step_seconds) {
    // The rate of the last few steps, so that it follows what the machine does meanwhile.
    rate_ = rate_ == 0 ? step_seconds : 0.9 * rate_ + 0.1 * step_seconds;
    const bool last = done == steps_;
    if (!terminal_ && !last && done % std::max<int64_t>(steps_ / 5, 1) != 0) return;
    const auto left = static_cast<double>(steps_ - done) * rate_;
    std::printf("%s  %s: step %3ld of %ld, loss %.3f, %6.0f tokens/s, %ld steps left (%.0f s)%s", terminal_ ? "\r" : "",
                what_, static_cast<long>(done), static_cast<long>(steps_), loss, static_cast<double>(tokens_) / rate_,
                static_cast<long>(steps_ - done), left, terminal_ && !last ? "  " : "\n");
    std::fflush(stdout);
  }

 private:
  const char* const what_;
  const int64_t steps_, tokens_;
  const bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  double rate_ = 0;
};

std::string generate(Training& training, const Text& text, const TrainingOptions& options, size_t length) {
  std::string written = "The people of the workshop";
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  constexpr double temperature = 0.4;
  const auto context = static_cast<size_t>(options.pipeline.model.context);
  while (written.size() < length) {
    const auto seen = written.size() <= context ? written : written.substr(written.size() - context);
    const auto scores = training.scores(at::tensor(text.encode(seen)).unsqueeze(0)).select(1, -1).squeeze(0);
    const auto next = at::multinomial((scores / temperature).softmax(0), 1, false, generator);
    written += text.decode(next.item<int64_t>());
  }
  return written;
}

std::string indented(const std::string& text, size_t width) {
  std::string lines = "  ";
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (column + (end - at) > width) lines += "\n  ", column = 0;
    lines += text.substr(at, end - at) + " ";
    column += end - at + 1;
    if (end < text.size() && text[end] == '\n') lines += "\n  ", column = 0;
    at = end + 1;
  }
  return lines + "\n";
}

/// What a step took.
struct StepCost {
  double median_ms = 0;
  double cpu_ms = 0;  // of all processes
};

}  // namespace

TrainingOptions training_options(const ShowOptions& options, const Text& text) {
  TrainingOptions training;
  training.pipeline.model.vocabulary = text.vocabulary();
  training.pipeline.model.seed = options.seed;
  training.pipeline.schedule = options.schedule;
  const bool interleaved = options.schedule == PipelineSchedule::Interleaved;
  training.pipeline.shape = {options.workers, interleaved ? 2 : 1, interleaved ? 2 * options.workers : 6};
  training.pipeline.model.blocks = std::max(3, training.pipeline.shape.stages());
  training.batch = 3 * training.pipeline.shape.micro_batches;
  training.steps = options.steps.value_or(training.steps);
  training.seed = options.seed;
  return training;
}

std::string checkpoints_of(const ShowOptions& options) {
  return options.out + "/checkpoints-seed" + std::to_string(options.seed);
}

namespace {

/// What checkpoints are of beside the model: the learning rate of a step depends on the steps of the whole run.
struct Run {
  int64_t steps = 0;
  int64_t batch = 0;
};

std::string path_of_run(const ShowOptions& options) { return checkpoints_of(options) + "/run.txt"; }

void write_run(const ShowOptions& options, const TrainingOptions& training) {
  write_file(path_of_run(options),
             "steps " + std::to_string(training.steps) + "\nbatch " + std::to_string(training.batch) + "\n");
}

std::optional<Run> read_run(const ShowOptions& options) {
  std::istringstream in(read_file(path_of_run(options)).value_or(""));
  std::string steps, batch;
  Run run;
  if (!(in >> steps >> run.steps >> batch >> run.batch) || steps != "steps" || batch != "batch") return {};
  return run;
}

/// Of the run that is resumed, if one is.
TrainingOptions settled(ShowOptions options, const Text& text) {
  if (!options.resume) return training_options(options, text);
  if (!Checkpoints(checkpoints_of(options)).last()) {
    throw Error("[demo] there is no checkpoint in " + checkpoints_of(options) + " to resume from");
  }
  const auto run = read_run(options);
  if (!run) {
    throw Error("[demo] " + path_of_run(options) + " does not say what run the checkpoint is of; " +
                "begin anew without --resume");
  }
  const auto begun = std::to_string(run->steps);
  if (options.steps && *options.steps != run->steps) {
    throw Error("[demo] the run in " + checkpoints_of(options) + " was begun with --steps " + begun + ", not " +
                std::to_string(*options.steps) + ", and its learning rate depends on that; resume it without --steps");
  }
  options.steps = run->steps;
  auto training = training_options(options, text);
  if (training.batch != run->batch) {
    throw Error("[demo] the run in " + checkpoints_of(options) + " was begun with " + std::to_string(run->batch) +
                " passages per step, and with these --workers and --schedule there are " +
                std::to_string(training.batch));
  }
  return training;
}

/// One showing, from the first step to the files at the end.
class Showing {
 public:
  Showing(Worker& worker, const ShowOptions& options, const std::atomic<bool>& stop)
      : worker_(worker),
        options_(options),
        stop_(stop),
        text_(essay()),
        training_options_(settled(options, text_)),
        checkpoints_(checkpoints_of(options)) {}

  void run() {
    std::filesystem::create_directories(options_.out);
    introduce();
    if (!train_over_workers()) return tell_of_interruption();
    if (!train_alone()) return tell_of_interruption();
    std::printf("\nLoss by step (p: pipeline, 1: one process, #: both):\n\n%s", plot(curves_, 72, 14).c_str());
    std::printf("\n  largest difference of the two at any step: %.1e\n", curves_.largest_difference());
    tell_costs();
    std::printf("\nWhat the model of the %d processes writes now:\n\n%s", options_.workers,
                indented(sample_, 76).c_str());
    write_file(options_.out + "/loss.csv", to_csv(curves_));
    write_file(options_.out + "/loss.svg", to_svg(curves_));
    write_file(options_.out + "/sample.txt", sample_ + "\n");
    std::printf("\nFiles: %s/loss.csv, %s/loss.svg, %s/sample.txt\n", options_.out.c_str(), options_.out.c_str(),
                options_.out.c_str());
    std::printf("Checkpoint: %s\n", checkpoints_.last()->path.c_str());
  }

 private:
  int64_t tokens_per_step() const { return training_options_.batch * training_options_.pipeline.model.context; }

  void introduce() const {
    const auto& [model, schedule, shape] = training_options_.pipeline;
    std::printf("A transformer of %ld blocks learns a text of %ld characters. Its %d stages lie in %d processes;\n",
                static_cast<long>(model.blocks), static_cast<long>(text_.length()), shape.stages(), shape.workers);
    std::printf("batches of %ld passages go through them in %d micro-batches.\n\n",
                static_cast<long>(training_options_.batch), shape.micro_batches);
  }

  /// False if it was told to stop.
  bool train_over_workers() {
    PipelineTraining training(worker_, text_, training_options_);
    int64_t done = options_.resume ? resume(training) : 0;
    if (!options_.resume) checkpoints_.clear();
    training.pipeline().reports();  // What was before the first step is of no interest.
    const int64_t steps = training_options_.steps;
    Progress progress("pipeline   ", steps, tokens_per_step());
    std::vector<double> times;
    const int64_t between = std::max<int64_t>(steps / 5, 1);
    while (done < steps && !stop_) {
      const auto start = Clock::now();
      curves_.pipeline.push_back(training.step(done++));
      times.push_back(seconds_since(start));
      progress.show(done, curves_.pipeline.back(), times.back());
      if (done % between == 0 || done == steps) save(training, done);
    }
    if (stop_) {
      save(training, done);
      return false;
    }
    if (!times.empty()) count_costs(training.pipeline(), times);
    sample_ = generate(training, text_, training_options_, 400);
    return true;
  }

  void count_costs(const Pipeline& pipeline, const std::vector<double>& times) {
    const auto steps = static_cast<double>(times.size());
    auto& cost = pipeline_cost_.emplace();
    reports_ = pipeline.reports();
    for (auto& report : reports_) {
      report.forward_seconds /= steps;
      report.backward_seconds /= steps;
      cost.cpu_ms += 1e3 * report.cpu_seconds / steps;
    }
    optimizer_ms_ = 1e3 * pipeline.optimizer_seconds() / steps;
    cost.median_ms = 1e3 * median(times);
  }

  int64_t resume(PipelineTraining& training) {
    const auto last = checkpoints_.last();
    training.load(last->path);
    curves_.pipeline = from_csv(read_file(losses_so_far()).value_or("")).pipeline;
    const auto steps = static_cast<size_t>(last->steps);
    if (curves_.pipeline.size() < steps) {
      throw Error("[demo] " + losses_so_far() + " does not go as far as " + last->path +
                  "; begin anew without --resume");
    }
    curves_.pipeline.resize(steps);
    std::printf("  goes on after step %ld, from %s\n", static_cast<long>(last->steps), last->path.c_str());
    return last->steps;
  }

  /// With the checkpoints, because it belongs to a seed as they do.
  std::string losses_so_far() const { return checkpoints_of(options_) + "/loss.csv"; }

  void save(PipelineTraining& training, int64_t steps) {
    std::filesystem::create_directories(checkpoints_of(options_));
    write_run(options_, training_options_);
    write_file(losses_so_far(), to_csv(curves_));  // First: losses of later steps are cut off by resume().
    checkpoints_.save(steps, [&](const std::string& directory) { training.save(directory); });
  }

  bool train_alone() {
    LocalTraining training(text_, training_options_);
    const int64_t steps = training_options_.steps;
    Progress progress("one process", steps, tokens_per_step());
    std::vector<double> times;
    const double cpu = cpu_seconds();
    for (int64_t done = 0; done < steps && !stop_;) {
      const auto start = Clock::now();
      curves_.one_process.push_back(training.step(done++));
      times.push_back(seconds_since(start));
      progress.show(done, curves_.one_process.back(), times.back());
    }
    alone_cost_ = {1e3 * median(times), 1e3 * (cpu_seconds() - cpu) / static_cast<double>(steps)};
    return !stop_;
  }

  void tell_costs() const {
    std::printf("\nWhat distribution costs, per step:\n\n");
    std::printf("                median    CPU time\n");
    std::printf("  one process %7.1f ms %8.1f ms\n", alone_cost_.median_ms, alone_cost_.cpu_ms);
    if (!pipeline_cost_) {
      std::printf("  %d processes: not measured, because all of their steps were taken before this run was resumed\n",
                  options_.workers);
      return;
    }
    const double wall = pipeline_cost_->median_ms, cpu = pipeline_cost_->cpu_ms;
    std::printf("  %d processes %7.1f ms %8.1f ms: %.2f times the time, %.2f times the work, on %u cores\n\n",
                options_.workers, wall, cpu, wall / alone_cost_.median_ms, cpu / alone_cost_.cpu_ms,
                std::thread::hardware_concurrency());
    std::printf("             forward   backward       else   micro-batches kept\n");
    for (size_t i = 0; i < reports_.size(); i++) {
      const double forward = 1e3 * reports_[i].forward_seconds, backward = 1e3 * reports_[i].backward_seconds;
      std::printf("  worker%zu %8.1f ms %7.1f ms %7.1f ms %20d\n", i, forward, backward,
                  std::max(wall - forward - backward, 0.0), reports_[i].most_kept);
    }
    std::printf("\n  else: waiting for the others, and %.1f ms for the optimizer.\n", optimizer_ms_);
  }

  void tell_of_interruption() const {
    std::printf("\nstopped.");
    if (const auto last = checkpoints_.last()) {
      std::printf(" The last checkpoint is %s, after step %ld;\n--resume goes on from there.", last->path.c_str(),
                  static_cast<long>(last->steps));
    }
    std::printf("\n");
  }

  Worker& worker_;
  const ShowOptions options_;
  const std::atomic<bool>& stop_;
  const Text text_;
  const TrainingOptions training_options_;
  const Checkpoints checkpoints_;
  Curves curves_;
  std::optional<StepCost> pipeline_cost_;  // of the steps that were taken here, if there were any
  StepCost alone_cost_;
  std::vector<StationReport> reports_;  // by step
  double optimizer_ms_ = 0;
  std::string sample_;
};

}  // namespace

void show(Worker& worker, const ShowOptions& options, const std::atomic<bool>& stop) {
  Showing(worker, options, stop).run();
}

}  // namespace farad::demo
