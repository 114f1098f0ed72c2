#include "acer/training.h"

#include <farad/error.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "acer/best.h"
#include "acer/checkpoint.h"
#include "acer/compare.h"
#include "acer/config.h"
#include "acer/environments/registry.h"
#include "acer/journal.h"
#include "acer/processes.h"
#include "acer/schedule.h"
#include "acer/worker_process.h"

namespace farad::acer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A worker that is killed again and again is not killed by accident.
constexpr int most_lives = 20;

/// The process that started all others: it looks after them and writes down what they do, and computes nothing.
class Coordinator {
 public:
  Coordinator(const Settings& settings, Board& board)
      : settings_(settings),
        board_(board),
        spec_(make_environment(settings.environment)->spec()),
        shared_("farad-acer-" + std::to_string(::getpid()), settings.shape(spec_), settings),
        metrics_(board, settings.workers, settings.capacity_of_worker() * settings.workers, bytes_of(*shared_.network)),
        journal_(settings.out, settings.resume ? std::optional(board.steps.load()) : std::nullopt),
        checkpoint_(settings.out),
        best_(settings.out, settings.resume),
        workers_(static_cast<size_t>(settings.workers)) {}

  ~Coordinator() {
    // Only if something was thrown is anybody left.
    for (const auto& worker : workers_) end(worker.process);
    end(evaluator_);
    end(manager_);
  }
  Coordinator(const Coordinator&) = delete;

  Result run() {
    if (settings_.resume) resume();
    clear_logs(settings_.out);  // Also if there will be none: those of another run would be taken for this one's.
    Checkpoint::clear(checkpoint_.at_end());
    Checkpoint::clear(checkpoint_.next());
    start_evaluator();
    if (settings_.policy == shared::Policy::Managed) start_manager();
    for (int i = 0; i < settings_.workers; ++i) start_worker(i);
    Every report_due(settings_.report_every, board_.steps), evaluation_due(settings_.evaluate_every, board_.steps),
        save_due(settings_.checkpoint_every, board_.steps);
    while (look_after_workers()) {
      wait_for_evaluation(milliseconds(20));
      const int64_t steps = board_.steps;
      if (report_due(steps)) report();
      if (!evaluating_ && evaluation_due(steps)) ask_for_evaluation();
      if (const int64_t number = checkpoint_due(save_due); number > 0) save_with_workers(number);
    }
    end_manager();
    finish();
    return result_;
  }

 private:
  /// True once for each so many steps; never if that is 0.
  class Every {
   public:
    Every(int64_t steps, int64_t begin) : steps_(steps), last_(begin) {}
    bool operator()(int64_t now) {
      if (steps_ == 0 || now / steps_ == last_ / steps_) return false;
      last_ = now;
      return true;
    }

   private:
    const int64_t steps_;
    int64_t last_;
  };

  struct WorkerProcess {
    pid_t process = -1;
    int killed = 0;
  };

  static void end(pid_t process) {
    if (process <= 0) return;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }

  /// Returns once it has its seat at the model. Gradients that come together are added up in the order of seats, and so
  /// those have to be taken in the order of the workers for a seed to decide the sum.
  void start_worker(int worker) {
    auto& [process, killed] = workers_[static_cast<size_t>(worker)];
    Pipe seated;
    process = start_process([&, goes_on = settings_.resume && killed == 0] {
      shared_.model.worker();
      seated.close_writing();
      work(settings_, shared_, board_, worker, goes_on);
    });
    seated.close_writing();
    char nothing = 0;
    while (::read(seated.reading(), &nothing, 1) < 0 && errno == EINTR) {  // Ends when it closes its end, or ends.
    }
  }

  void start_manager() {
    manager_ = start_process([&] { manage(shared_, board_); });
  }

  /// One that was killed is replaced; meanwhile workers do its work.
  void look_after_manager() {
    int status = 0;
    if (manager_ <= 0 || ::waitpid(manager_, &status, WNOHANG) == 0) return;
    manager_ = -1;
    const auto what = "the process that applies updates " + ending_of(status);
    if (!WIFSIGNALED(status) || ++manager_lives_ >= most_lives) throw Error("[acer] " + what);
    journal_.complain(what + "; another one goes on");
    start_manager();
  }

  void end_manager() {
    board_.over = true;
    if (manager_ > 0) ::waitpid(manager_, nullptr, 0);
    manager_ = -1;
  }

  void start_evaluator() {
    requests_.emplace();
    results_.emplace();
    evaluator_ = start_process([&] {
      requests_->close_writing();
      results_->close_reading();
      serve_evaluations(settings_, shared_.model, requests_->reading(), results_->writing());
    });
    evaluating_ = false;
  }

  /// Whether any is left. Those that were killed go on as new processes.
  bool look_after_workers() {
    look_after_manager();
    bool any = false;
    for (int i = 0; i < settings_.workers; ++i) {
      auto& [process, killed] = workers_[static_cast<size_t>(i)];
      if (process <= 0) continue;
      int status = 0;
      if (::waitpid(process, &status, WNOHANG) == 0) {
        any = true;
        continue;
      }
      process = -1;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const auto what = "worker " + std::to_string(i) + " " + ending_of(status);
      if (!WIFSIGNALED(status) || ++killed >= most_lives) throw Error("[acer] " + what + ", and the training ends");
      if (board_.stop) continue;
      journal_.complain(what + "; another process goes on");
      ++result_.replaced;
      ++board_.tallies[static_cast<size_t>(i)].life;
      start_worker(i);
      any = true;
    }
    return any;
  }

  void resume() {
    const auto last = checkpoint_.last();
    shared_.model.load(Checkpoint::model(last));
    if (const uint64_t every = versions_between_checkpoints(settings_); workers_meet(settings_) && every > 0)
      board_.resumed = static_cast<int64_t>(shared_.model.version() / every);
    std::printf("  goes on after %ld steps, from %s\n", static_cast<long>(board_.steps), last.c_str());
  }

  /// The number of a checkpoint that it is time for, else 0. Workers that meet stop by themselves.
  int64_t checkpoint_due(Every& due) {
    if (!workers_meet(settings_)) return due(board_.steps) ? board_.checkpoint + 1 : 0;
    int64_t most = 0;
    for (const auto& tally : board_.tallies) most = std::max(most, tally.saved.load());
    return most > board_.resumed ? most : 0;
  }

  /// A checkpoint while the workers wait, each between two updates. None if some have ended: then all do soon. Nor if
  /// one does not come, because it takes another's place and waits for those who wait here.
  void save_with_workers(int64_t number) {
    board_.checkpoint = number;
    board_.changes.announce();
    const auto count = [&](auto is_so) {
      int sum = 0;
      for (size_t i = 0; i < workers_.size(); ++i) sum += is_so(workers_[i].process, board_.tallies[i].saved.load());
      return sum;
    };
    const auto waited_for = [&] { return count([&](pid_t p, int64_t saved) { return p > 0 && saved < number; }); };
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    for (auto before = board_.changes.count(); waited_for() > 0 && look_after_workers();) {
      if (workers_meet(settings_) && Clock::now() > deadline) break;
      board_.changes.wait(before, milliseconds(20));  // No longer: that a worker has ended is not announced.
      before = board_.changes.count();
    }
    if (waited_for() == 0 && count([](pid_t p, int64_t) { return p > 0; }) == settings_.workers) {
      save(checkpoint_.next());
      journal_.tell("saved at " + std::to_string(board_.steps.load()) + " steps");
    }
    Checkpoint::clear(checkpoint_.next());
    board_.resumed = number;
    board_.changes.announce();
  }

  /// With the parts that the workers have written there.
  void save(const std::string& parts) {
    shared_.model.save(Checkpoint::model(parts));
    board_.seconds = seconds();
    save_counts(Checkpoint::counts(parts), board_, settings_.workers);
    checkpoint_.keep_results(parts);
    checkpoint_.publish(parts);
  }

  void ask_for_evaluation() {
    const int64_t steps = board_.steps;
    if (::write(requests_->writing(), &steps, sizeof steps) == sizeof steps) evaluating_ = true;
  }

  /// True if one came.
  bool wait_for_evaluation(milliseconds time) {
    look_after_evaluator();
    pollfd ready{results_->reading(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(time.count())) <= 0 || !(ready.revents & POLLIN)) return false;
    Evaluation evaluation;
    if (::read(results_->reading(), &evaluation, sizeof evaluation) != sizeof evaluation) return false;
    evaluating_ = false;
    result_.evaluations.push_back(evaluation);
    metrics_.heard(evaluation);
    best_.heard(evaluation);
    journal_.heard(evaluation, seconds());
    return true;
  }

  void look_after_evaluator() {
    int status = 0;
    if (::waitpid(evaluator_, &status, WNOHANG) == 0) return;
    evaluator_ = -1;
    const auto what = "the process that evaluates " + ending_of(status);
    if (!WIFSIGNALED(status) || ++evaluator_lives_ >= most_lives) throw Error("[acer] " + what);
    journal_.complain(what + "; another one goes on");
    start_evaluator();
  }

  void finish() {
    result_.interrupted = board_.stop;
    result_.steps = board_.steps;
    result_.updates = shared_.model.version();
    result_.seconds = seconds();
    // However long that takes: whether it goes on is known, and a second Ctrl-C ends it. One that was begun is of older
    // parameters.
    while (evaluating_) wait_for_evaluation(milliseconds(100));
    for (const size_t before = result_.evaluations.size(); result_.evaluations.size() == before;) {
      if (!evaluating_) ask_for_evaluation();  // Also if who was asked has been killed.
      wait_for_evaluation(milliseconds(100));
    }
    requests_->close_writing();
    ::waitpid(evaluator_, nullptr, 0);
    evaluator_ = -1;
    result_.goal = spec_.solved;
    if (spec_.solved) result_.solved_after = steps_to(*spec_.solved, settings_.out);
    report();
    journal_.end_line();
    save(checkpoint_.at_end());
    journal_.draw(staleness());
  }

  void report() {
    const auto row = metrics_.row(board_, shared_.model, seconds());
    journal_.report(row, metrics_.rates());
  }

  std::vector<uint64_t> staleness() const {
    std::vector<uint64_t> late;
    for (const auto& update : shared_.model.history()) late.push_back(update.staleness());
    return late;
  }

  double seconds() const { return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Settings settings_;
  Board& board_;
  const Spec spec_;
  SharedModel shared_;
  Metrics metrics_;
  Journal journal_;
  const Checkpoint checkpoint_;
  BestPolicy best_;
  std::vector<WorkerProcess> workers_;
  pid_t evaluator_ = -1;
  pid_t manager_ = -1;
  int evaluator_lives_ = 0, manager_lives_ = 0;
  bool evaluating_ = false;
  std::optional<Pipe> requests_, results_;
  const Clock::time_point start_ = Clock::now();
  const double seconds_before_ = board_.seconds;
  Result result_;
};

/// Of a training that goes on, what it has counted and what it has come to are again what they were when it was saved.
void go_back_to_the_last_checkpoint(const Settings& settings, Board& board) {
  const Checkpoint checkpoint(settings.out);
  load_counts(Checkpoint::counts(checkpoint.last()), board, settings.workers);
  checkpoint.restore_results();
  // Whoever is not what was saved, now or later, must not draw random numbers that others before it have drawn.
  for (auto& tally : board.tallies) ++tally.life;
}

}  // namespace

Result train(const Settings& settings, Board& board) {
  check(settings);
  fs::create_directories(settings.out);
  if (settings.resume) go_back_to_the_last_checkpoint(settings, board);
  write_config(settings);
  return Coordinator(settings, board).run();
}

}  // namespace farad::acer
