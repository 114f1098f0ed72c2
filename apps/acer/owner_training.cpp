#include "acer/owner_training.h"

#include <farad/error.h>
#include <farad/worker.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "acer/best.h"
#include "acer/checkpoint.h"
#include "acer/config.h"
#include "acer/crew.h"
#include "acer/environments/registry.h"
#include "acer/schedule.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

using Clock = std::chrono::steady_clock;

/// True once for each so many; never if that is 0.
bool is_due(int64_t every, int64_t now, int64_t& last) {
  if (every == 0 || now / every == last / every) return false;
  last = now;
  return true;
}

/// Where, in a checkpoint, lies what the first member knows of a training: lives of workers, and seconds.
std::string known_in(const std::string& checkpoint) { return checkpoint + "/known"; }

/// What the first member does while the others learn.
class Lead {
 public:
  Lead(Worker& worker, const Settings& settings, const Board& board, std::chrono::milliseconds patience)
      : settings_(settings),
        board_(board),
        patience_(patience),
        checkpoint_(settings.out),
        best_(settings.out, settings.resume),
        spec_(make_environment(settings.environment)->spec()),
        owner_(std::make_shared<Owner>(settings, spec_, board)),
        agent_(make_agent(settings, spec_)),
        rows_(settings.out + "/metrics.csv", settings.resume),
        evaluations_(settings.out + "/evaluations.csv", settings.resume),
        crew_(worker, RRef<std::shared_ptr<Owner>>::local(worker, owner_), settings, resume()) {}

  Result run() {
    int64_t reported = owner_->progress().steps, evaluated = reported, saved = reported;
    while (goes_on()) {
      const auto progress = owner_->progress();
      if (is_due(settings_.report_every, progress.steps, reported)) report(progress);
      if (is_due(settings_.evaluate_every, progress.steps, evaluated)) evaluate_now(progress.steps);
      if (is_due(settings_.checkpoint_every, progress.steps, saved)) save(checkpoint_.next());
    }
    const auto progress = owner_->progress();
    result_.interrupted = board_.stop;
    result_.steps = progress.steps;
    result_.updates = progress.updates;
    result_.seconds = seconds();
    result_.replaced = crew_.returned();
    report(progress);
    save(checkpoint_.at_end());  // First: it is what must not be lost.
    evaluate_now(progress.steps);
    checkpoint_.keep_results(checkpoint_.last());  // That one too.
    return result_;
  }

  /// Whether some worker has not come back from its call.
  bool some_are_missing() const { return !crew_.at_work().empty(); }

 private:
  /// What the last checkpoint has, if this run goes on from there. Gives how many lives of workers there were.
  int resume() {
    if (!settings_.resume) return 0;
    const auto last = checkpoint_.last();
    owner_->load(last);
    std::ifstream in(known_in(last), std::ios::binary);
    const int lives = take<int>(in);
    reported_at_ = seconds_before_ = take<double>(in);
    const auto progress = owner_->progress();
    steps_before_ = progress.steps;
    updates_before_ = progress.updates;
    std::printf("  goes on after %ld steps, from %s; workers begin anew, with empty replays\n",
                static_cast<long>(progress.steps), last.c_str());
    return lives + 1;
  }

  bool is_done() const { return board_.stop || owner_->progress().steps >= settings_.steps; }

  /// Looks after the workers for a little while. False once it is all over, or has been for so long that those who have
  /// not heard of it are left behind.
  bool goes_on() {
    const bool done = is_done();
    crew_.look_after(!done);
    const auto at_work = crew_.at_work();
    if (done && at_work.empty()) return false;
    if (!done && !at_work.empty()) {
      waits_since_.reset();
      return true;
    }
    // Either there is nobody to do it, or somebody who does not know that it is done.
    if (!done && !crew_.may_return()) throw Error("[acer] no worker is left: " + crew_.last_failure());
    if (!waits_since_ || waits_for_end_ != done) {
      waits_since_ = Clock::now();
      waits_for_end_ = done;
    }
    if (Clock::now() - *waits_since_ < patience_) return true;
    if (!done) {
      throw Error("[acer] no worker is left, and none was started again within " + std::to_string(patience_.count()) +
                  " ms: " + crew_.last_failure());
    }
    std::string ranks;
    for (const int rank : at_work) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    std::fprintf(stderr, "farad acer: the training is over, and ends without those who did not hear of it: rank %s\n",
                 ranks.c_str());
    return false;
  }

  void save(const std::string& parts) {
    Checkpoint::clear(parts);
    owner_->save(parts);
    std::ofstream out(known_in(parts), std::ios::binary);
    put(out, crew_.lives());
    put(out, seconds());
    if (!out.flush()) throw Error("[acer] cannot write " + known_in(parts));
    checkpoint_.keep_results(parts);
    checkpoint_.publish(parts);
  }

  void report(const Owner::Progress& progress) {
    const double now = seconds(), elapsed = std::max(now - reported_at_, 1e-9);
    const double rate = static_cast<double>(progress.steps - steps_before_) / elapsed;
    const double updates = static_cast<double>(progress.updates - updates_before_) / elapsed;
    reported_at_ = now;
    steps_before_ = progress.steps;
    updates_before_ = progress.updates;
    const auto evaluation = result_.evaluations.empty() ? std::nullopt : std::optional(result_.evaluations.back());
    const double unknown = Owner::Progress::unknown;
    // Those of metrics.csv that can be known here.
    rows_.write({{"steps", static_cast<double>(progress.steps)},
                 {"updates", static_cast<double>(progress.updates)},
                 {"seconds", now},
                 {"episodes", static_cast<double>(progress.episodes)},
                 {"return_mean", progress.mean_return},
                 {"return_min", progress.least_return},
                 {"return_max", progress.most_return},
                 {"evaluation_version", evaluation ? static_cast<double>(evaluation->version) : unknown},
                 {"evaluation_greedy", evaluation ? evaluation->greedy.mean : unknown},
                 {"evaluation_sampled", evaluation ? evaluation->sampled.mean : unknown},
                 {"staleness_mean", progress.mean_staleness},
                 {"staleness_p99", progress.staleness_p99},
                 {"staleness_max", static_cast<double>(progress.most_stale)},
                 {"steps_per_second", rate},
                 {"updates_per_second", updates}});
    std::printf("  %7ld steps, return %7.2f, %6.0f steps/s, %5.0f updates/s, staleness %.2f\n",
                static_cast<long>(progress.steps), progress.mean_return, rate, updates, progress.mean_staleness);
    std::fflush(stdout);
  }

  void evaluate_now(int64_t steps) {
    const uint64_t version = owner_->copy_to(agent_->network());
    agent_->follow_network();
    auto evaluation = evaluate(*agent_, settings_);
    evaluation.steps = steps;
    evaluation.version = version;
    result_.evaluations.push_back(evaluation);
    BestPolicy::write(agent_->network(), settings_.out);
    best_.heard(evaluation);
    evaluations_.write(row_of(evaluation, seconds()));
  }

  double seconds() const { return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Settings settings_;
  const Board& board_;
  const std::chrono::milliseconds patience_;
  const Checkpoint checkpoint_;
  BestPolicy best_;
  const Spec spec_;
  const std::shared_ptr<Owner> owner_;
  const std::unique_ptr<Agent> agent_;
  CsvFile rows_, evaluations_;
  const Clock::time_point start_ = Clock::now();
  double seconds_before_ = 0, reported_at_ = 0;
  int64_t steps_before_ = 0;
  uint64_t updates_before_ = 0;
  std::optional<Clock::time_point> waits_since_;
  bool waits_for_end_ = false;
  Result result_;
  Crew crew_;  // Last: it begins to work at once, with what the others are then.
};

}  // namespace

std::optional<Result> train_with_owner(Settings settings, const Board& board, std::chrono::milliseconds patience) {
  check(settings);
  if (settings.inject != Fault::None) throw Error("[acer] --inject is for workers that share memory, without --owner");
  auto worker = Worker::join();
  if (worker.size() < 2) {
    throw Error(
        "[acer] --owner needs a group of two or more: farad run -n 3 -- farad-acer --owner ... has two workers");
  }
  settings.owner = true;
  settings.policy = shared::Policy::Locked;
  settings.workers = worker.size() - 1;
  std::optional<Result> result;
  if (worker.rank() == 0) {
    std::filesystem::create_directories(settings.out);
    clear_logs(settings.out);  // This one has none, and those of another would be taken for it.
    if (settings.resume) Checkpoint(settings.out).restore_results();
    write_config(settings);
    std::printf("%s, %d workers that call their owner, %ld steps, seed %lu\n", settings.environment.c_str(),
                settings.workers, static_cast<long>(settings.steps), static_cast<unsigned long>(settings.seed));
    std::fflush(stdout);
    Lead lead(worker, settings, board, patience);
    result = lead.run();
    if (lead.some_are_missing()) return result;  // To close would be to wait for them.
  }
  try {
    worker.close();  // The others work until then, in calls.
  } catch (const PeerLost&) {
    // Whoever was lost was done without, unless it is the one who keeps the parameters.
    if (!result && !has_heard_the_end()) throw;
  }
  return result;
}

}  // namespace farad::acer
