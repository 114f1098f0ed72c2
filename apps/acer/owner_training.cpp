#include "acer/owner_training.h"

#include <farad/error.h>
#include <farad/worker.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "acer/actor_learner.h"
#include "acer/checkpoint.h"
#include "acer/environments/registry.h"
#include "acer/owner.h"

namespace farad::acer {
namespace {

using OwnerRef = RRef<std::shared_ptr<Owner>>;
using Clock = std::chrono::steady_clock;

/// How long workers may take to hear that the training is over. Each does with its next update.
constexpr auto patience_at_end = std::chrono::seconds(30);

/// Of this process: its worker has heard that the training is over.
std::atomic<bool> done_here{false};

/// What each worker is called for. Gives how many steps it took.
int64_t learn_by_calls(const OwnerRef& owner, const Settings& settings, int worker) {
  const auto tally = std::make_unique<Tally>();
  OwnedParameters parameters(owner, *tally);
  ActorLearner learner(settings, parameters, *tally, worker, 0);
  while (!parameters.told_to_stop()) learner.update();
  done_here = true;
  return tally->steps;
}

/// What the first member does while the others learn.
class Lead {
 public:
  Lead(Worker& worker, const Settings& settings, const Board& board)
      : settings_(settings),
        board_(board),
        spec_(make_environment(settings.environment)->spec()),
        owner_(std::make_shared<Owner>(settings, spec_, board)),
        agent_(make_agent(settings, spec_)),
        rows_(settings.out + "/metrics.csv", false),
        evaluations_(settings.out + "/evaluations.csv", false) {
    const auto ref = OwnerRef::local(worker, owner_);
    // They take as long as the training does.
    for (int rank = 1; rank < worker.size(); ++rank) {
      calls_.push_back({rank, worker.with({.timeout = std::chrono::milliseconds(0)})
                                  .rpc_async<learn_by_calls>(rank, ref, settings, rank - 1)});
    }
  }

  Result run() {
    int64_t reported = 0, evaluated = 0;
    const auto due = [](int64_t every, int64_t now, int64_t& last) {
      if (every == 0 || now / every == last / every) return false;
      last = now;
      return true;
    };
    while (any_works() && !is_overdue()) {
      const auto progress = owner_->progress();
      if (due(settings_.report_every, progress.steps, reported)) report(progress);
      if (due(settings_.evaluate_every, progress.steps, evaluated)) evaluate_now(progress.steps);
    }
    const auto progress = owner_->progress();
    if (!board_.stop && progress.steps < settings_.steps) throw Error("[acer] no worker is left: " + last_failure_);
    result_.interrupted = board_.stop;
    result_.steps = progress.steps;
    result_.updates = progress.updates;
    result_.seconds = seconds();
    report(progress);
    save();  // First: it is what must not be lost.
    evaluate_now(progress.steps);
    return result_;
  }

  /// Whether some worker has not come back from its call.
  bool some_are_missing() const { return !calls_.empty(); }

 private:
  struct Call {
    int rank;
    Future<int64_t> steps;
  };

  /// Waits a little for it to change. What a worker fails with is told once.
  bool any_works() {
    std::erase_if(calls_, [&](auto& call) {
      if (!call.steps.ready()) return false;
      try {
        call.steps.wait();
      } catch (const c10::Error& error) {
        last_failure_ = error.what_without_backtrace();
        std::fprintf(stderr, "farad acer: a worker is lost, and the others go on: %s\n", last_failure_.c_str());
      }
      return true;
    });
    if (calls_.empty()) return false;
    calls_.front().steps.wait_for(std::chrono::milliseconds(20));
    return true;
  }

  /// Whether all is done, and those who work have been waited for long enough. Tells who they are.
  bool is_overdue() {
    if (!board_.stop && owner_->progress().steps < settings_.steps) return false;
    if (!done_at_) done_at_ = Clock::now();
    if (Clock::now() - *done_at_ < patience_at_end) return false;
    std::string ranks;
    for (const auto& call : calls_) ranks += (ranks.empty() ? "" : ", ") + std::to_string(call.rank);
    std::fprintf(stderr, "farad acer: the training is over, and ends without those who did not hear of it: rank %s\n",
                 ranks.c_str());
    return true;
  }

  void save() {
    const Checkpoint checkpoint(settings_.out);
    Checkpoint::clear(checkpoint.at_end());
    owner_->save(Checkpoint::model(checkpoint.at_end()));
    checkpoint.publish(checkpoint.at_end());
  }

  void report(const Owner::Progress& progress) {
    const double now = seconds(), elapsed = std::max(now - reported_at_, 1e-9);
    const double rate = static_cast<double>(progress.steps - steps_before_) / elapsed;
    const double updates = static_cast<double>(progress.updates - updates_before_) / elapsed;
    reported_at_ = now;
    steps_before_ = progress.steps;
    updates_before_ = progress.updates;
    rows_.write({{"steps", static_cast<double>(progress.steps)},
                 {"updates", static_cast<double>(progress.updates)},
                 {"seconds", now},
                 {"episodes", static_cast<double>(progress.episodes)},
                 {"return_mean", progress.mean_return},
                 {"staleness_mean", progress.mean_staleness},
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
    evaluations_.write(row_of(evaluation, seconds()));
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Settings settings_;
  const Board& board_;
  const Spec spec_;
  const std::shared_ptr<Owner> owner_;
  const std::unique_ptr<Agent> agent_;
  CsvFile rows_, evaluations_;
  std::vector<Call> calls_;
  std::optional<Clock::time_point> done_at_;
  std::string last_failure_;
  const Clock::time_point start_ = Clock::now();
  double reported_at_ = 0;
  int64_t steps_before_ = 0;
  uint64_t updates_before_ = 0;
  Result result_;
};

}  // namespace

std::optional<Result> train_with_owner(Settings settings, const Board& board) {
  check(settings);
  if (settings.resume || settings.checkpoint_every != 0 || settings.inject != Fault::None)
    throw Error("[acer] --owner saves the model at the end; it knows no --resume, --checkpoint-every or --inject");
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
    write_config(settings);
    std::printf("%s, %d workers that call their owner, %ld steps, seed %lu\n", settings.environment.c_str(),
                settings.workers, static_cast<long>(settings.steps), static_cast<unsigned long>(settings.seed));
    std::fflush(stdout);
    Lead lead(worker, settings, board);
    result = lead.run();
    if (lead.some_are_missing()) return result;  // To close would be to wait for them.
  }
  try {
    worker.close();  // The others work until then, in calls.
  } catch (const PeerLost&) {
    // Whoever was lost was done without, unless it is the one who keeps the parameters.
    if (!result && !done_here) throw;
  }
  return result;
}

}  // namespace farad::acer
