#include "acer/owner_training.h"

#include <farad/error.h>
#include <farad/worker.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "acer/best.h"
#include "acer/checkpoint.h"
#include "acer/compare.h"
#include "acer/config.h"
#include "acer/crew.h"
#include "acer/environments/registry.h"
#include "acer/journal.h"
#include "acer/owners_evaluator.h"
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

/// Where, in a checkpoint, lies how many lives of workers there were.
std::string lives_in(const std::string& checkpoint) { return checkpoint + "/lives"; }

/// What the first member does while the others learn.
class Lead {
 public:
  Lead(Worker& worker, const Settings& settings, Board& board, OwnersEvaluator& evaluator,
       std::chrono::milliseconds patience)
      : settings_(settings),
        board_(board),
        evaluator_(evaluator),
        patience_(patience),
        checkpoint_(settings.out),
        best_(settings.out, settings.resume),
        spec_(make_environment(settings.environment)->spec()),
        owner_(std::make_shared<Owner>(settings, spec_, board)),
        agent_(make_agent(settings, spec_)),
        lives_before_(resume()),
        seconds_before_(board.seconds),
        metrics_(board, settings.workers, settings.capacity_of_worker() * settings.workers, owner_->bytes()),
        journal_(settings.out, settings.resume ? std::optional(owner_->progress().steps) : std::nullopt),
        crew_(worker, RRef<std::shared_ptr<Owner>>::local(worker, owner_), settings, lives_before_) {
    evaluator_.look_at(owner_->model());
  }

  Result run() {
    int64_t reported = owner_->progress().steps, evaluated = reported, saved = reported;
    while (goes_on()) {
      const auto progress = owner_->progress();
      if (is_due(settings_.report_every, progress.steps, reported)) report();
      hear_of_evaluations(std::chrono::milliseconds(0));
      if (!evaluator_.is_busy() && is_due(settings_.evaluate_every, progress.steps, evaluated))
        evaluate_at(progress.steps);
      if (is_due(settings_.checkpoint_every, progress.steps, saved)) save(checkpoint_.next());
    }
    const auto progress = owner_->progress();
    result_.interrupted = board_.stop;
    result_.steps = progress.steps;
    result_.updates = progress.updates;
    result_.seconds = seconds();
    result_.replaced = crew_.returned();
    save(checkpoint_.at_end());  // First: it is what must not be lost.
    evaluate_at_the_end(progress.steps);
    result_.goal = spec_.solved;
    if (spec_.solved) result_.solved_after = steps_to(*spec_.solved, settings_.out);
    report();
    journal_.end_line();
    checkpoint_.keep_results(checkpoint_.last());  // What came after it too.
    journal_.draw(owner_->staleness());
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
    std::ifstream in(lives_in(last), std::ios::binary);
    const int lives = take<int>(in);
    std::printf("  goes on after %ld steps, from %s; workers begin anew, with empty replays\n",
                static_cast<long>(owner_->progress().steps), last.c_str());
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
    board_.seconds = seconds();
    owner_->save(parts);
    std::ofstream out(lives_in(parts), std::ios::binary);
    put(out, crew_.lives());
    if (!out.flush()) throw Error("[acer] cannot write " + lives_in(parts));
    checkpoint_.keep_results(parts);
    checkpoint_.publish(parts);
  }

  void report() {
    const auto row = owner_->row(metrics_, seconds());
    journal_.report(row, metrics_.rates());
  }

  /// By the process that does that or, if it was killed, here: it cannot be forked off again beside so many threads.
  void evaluate_at(int64_t steps) {
    if (evaluator_.ask(steps)) return;
    const uint64_t version = owner_->copy_to(agent_->network());
    agent_->follow_network();
    auto evaluation = evaluate(*agent_, settings_);
    evaluation.steps = steps;
    evaluation.version = version;
    BestPolicy::write(agent_->network(), settings_.out);
    heard(evaluation);
  }

  void hear_of_evaluations(std::chrono::milliseconds wait) {
    if (!evaluator_.is_busy()) return;
    if (const auto evaluation = evaluator_.hear(wait)) return heard(*evaluation);
    if (!evaluator_.is_busy()) journal_.complain(evaluator_.ending() + "; the owner evaluates from here on");
  }

  void evaluate_at_the_end(int64_t steps) {
    const auto wait = std::chrono::milliseconds(100);
    while (evaluator_.is_busy()) hear_of_evaluations(wait);  // It is of older parameters.
    for (const size_t before = result_.evaluations.size(); result_.evaluations.size() == before;) {
      if (!evaluator_.is_busy()) evaluate_at(steps);
      hear_of_evaluations(wait);
    }
  }

  void heard(const Evaluation& evaluation) {
    result_.evaluations.push_back(evaluation);
    metrics_.heard(evaluation);
    best_.heard(evaluation);
    journal_.heard(evaluation, seconds());
  }

  double seconds() const { return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Settings settings_;
  Board& board_;
  OwnersEvaluator& evaluator_;
  const std::chrono::milliseconds patience_;
  const Checkpoint checkpoint_;
  BestPolicy best_;
  const Spec spec_;
  const std::shared_ptr<Owner> owner_;
  const std::unique_ptr<Agent> agent_;
  const Clock::time_point start_ = Clock::now();
  const int lives_before_;
  const double seconds_before_;
  Metrics metrics_;
  Journal journal_;
  std::optional<Clock::time_point> waits_since_;
  bool waits_for_end_ = false;
  Result result_;
  Crew crew_;  // Last: it begins to work at once, with what the others are then.
};

}  // namespace

std::optional<Result> train_with_owner(Settings settings, Board& board, std::chrono::milliseconds patience) {
  check(settings);
  if (settings.inject != Fault::None) throw Error("[acer] --inject is for workers that share memory, without --owner");
  OwnersEvaluator evaluator(settings);  // Before there are threads, and so before it is known who needs it.
  auto worker = Worker::join();
  if (worker.size() < 2) {
    throw Error(
        "[acer] --owner needs a group of two or more: farad run -n 3 -- farad-acer --owner ... has two workers");
  }
  if (worker.size() - 1 > Board::most_workers) {
    throw Error("[acer] an owner has room for " + std::to_string(Board::most_workers) + " workers, not for " +
                std::to_string(worker.size() - 1));
  }
  settings.owner = true;
  settings.policy = shared::Policy::Locked;
  settings.workers = worker.size() - 1;
  std::optional<Result> result;
  if (worker.rank() != 0) evaluator.end();
  if (worker.rank() == 0) {
    std::filesystem::create_directories(settings.out);
    clear_logs(settings.out);  // This one has none, and those of another would be taken for it.
    if (settings.resume) Checkpoint(settings.out).restore_results();
    write_config(settings);
    std::printf("%s, %d workers that call their owner, %ld steps, seed %lu\n", settings.environment.c_str(),
                settings.workers, static_cast<long>(settings.steps), static_cast<unsigned long>(settings.seed));
    std::fflush(stdout);
    Lead lead(worker, settings, board, evaluator, patience);
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
