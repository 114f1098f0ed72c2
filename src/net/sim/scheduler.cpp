#include "net/sim/scheduler.h"

#include <farad/error.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

namespace farad::net::sim {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds switch_cost{500};
constexpr nanoseconds look_cost{20};

/// Thrown out of the waits of a thread whose process was killed. Derives from nothing, so that nobody takes it for an
/// error to be handled.
struct Killed {};

}  // namespace

struct Scheduler::Task {
  enum class State { Ready, Waiting, Running, Ended };

  uint32_t id = 0;
  std::string name;
  Process process{};
  std::function<void()> run;
  std::thread thread;
  std::binary_semaphore baton{0};

  State state = State::Ready;
  Wait wait = Wait::Interruptible;
  std::string waits_for;
  bool woken = false;
  bool failing = false;  // It waits while an exception of its own unwinds it: its destructors join.
  int turns_while_dying = 0;
  std::optional<Moment> alarm;   // The entry in events_ that ends the wait.
  std::vector<Task*> joined_by;  // Waiting for this one's end.
};

namespace {
thread_local void* this_task = nullptr;
}

class Scheduler::SimParker final : public base::Parker {
 public:
  SimParker(Scheduler& scheduler, std::string name) : scheduler_(scheduler), name_(std::move(name)) {}

  bool park(base::TimePoint deadline) override {
    Task& me = scheduler_.current();
    // With a wake that was kept it is still a wait: others go first if the seed says so, as on the real machine.
    if (std::exchange(token_, false)) return scheduler_.wait(me, now, Wait::Interruptible, name_), true;
    parked_ = &me;
    const Unset at_the_end{parked_};
    return scheduler_.wait(me, deadline, Wait::Interruptible, name_);
  }

  void unpark() override {
    if (parked_) {
      scheduler_.wake(*parked_);
    } else {
      token_ = true;
    }
  }

 private:
  struct Unset {  // Also when the wait throws.
    Task*& task;
    ~Unset() { task = nullptr; }
  };
  static constexpr base::TimePoint now = base::TimePoint::min();

  Scheduler& scheduler_;
  const std::string name_;
  Task* parked_ = nullptr;
  bool token_ = false;
};

class Scheduler::SimThread final : public base::Thread {
 public:
  SimThread(Scheduler& scheduler, Task& task) : scheduler_(scheduler), task_(task) {}

  ~SimThread() override {
    if (task_.state != Task::State::Ended) {
      Task& me = scheduler_.current();
      task_.joined_by.push_back(&me);
      scheduler_.wait(me, base::never, Wait::Join, "the end of " + task_.name);
    }
    task_.thread.join();
  }

 private:
  Scheduler& scheduler_;
  Task& task_;
};

Scheduler::Scheduler(uint64_t seed, base::Duration give_up_after) : give_up_after_(give_up_after), random_(seed) {
  processes_.resize(1);
}

Scheduler::~Scheduler() {
  for (auto& task : tasks_) {
    if (task->thread.joinable()) task->thread.join();
  }
}

void Scheduler::run(std::function<void()> first) {
  TORCH_CHECK(tasks_.empty(), "[sim] run: a world runs once; make another one");
  auto handle = start_process(Process::Harness, "first", std::move(first));
  choose()->baton.release();
  all_ended_.acquire();
  handle.reset();
  if (failure_) std::rethrow_exception(failure_);
  if (no_end_) std::rethrow_exception(no_end_);
}

base::TimePoint Scheduler::now() const { return now_ += look_cost; }

std::unique_ptr<base::Parker> Scheduler::make_parker(std::string name) {
  return std::make_unique<SimParker>(*this, std::move(name));
}

std::unique_ptr<base::Thread> Scheduler::start(std::string name, std::function<void()> run) {
  return start_process(current_process(), std::move(name), std::move(run));
}

std::unique_ptr<base::Thread> Scheduler::start_process(Process process, std::string name, std::function<void()> run) {
  auto owned = std::make_unique<Task>();
  Task& task = *owned;
  task.id = static_cast<uint32_t>(tasks_.size());
  task.name = std::move(name);
  task.process = process;
  task.run = std::move(run);
  task.thread = std::thread([this, &task] { body(task); });
  tasks_.push_back(std::move(owned));
  ++living_;
  trace_.add(now_, Trace::Kind::Start, task.id, static_cast<uint64_t>(process));
  make_ready(task);
  return std::make_unique<SimThread>(*this, task);
}

Process Scheduler::make_process() {
  processes_.emplace_back();
  return static_cast<Process>(processes_.size() - 1);
}

Process Scheduler::current_process() const { return current().process; }

Scheduler::Task& Scheduler::current() const {
  TORCH_CHECK(this_task && !in_event_,
              "[sim] only a simulated thread may wait or start another: call it inside "
              "World::run, and not from an event");
  return *static_cast<Task*>(this_task);
}

void Scheduler::body(Task& task) {
  this_task = &task;
  task.baton.acquire();
  try {
    if (!state(task.process).dying) task.run();
  } catch (const Killed&) {
  } catch (...) {
    // What the dead throw is no news, unless they were about to before.
    if (task.failing || !state(task.process).dying) {
      if (!failure_) failure_ = std::current_exception();
      kill_all();
    }
  }
  task.run = nullptr;  // What it captured ends in the simulation, not at some later time of the real machine.
  task.state = Task::State::Ended;
  trace_.add(now_, Trace::Kind::End, task.id);
  for (Task* waiting : task.joined_by) wake(*waiting);
  if (--living_ == 0) {
    all_ended_.release();
  } else {
    choose()->baton.release();
  }
}

bool Scheduler::wait(Task& me, base::TimePoint deadline, Wait kind, const std::string& what) {
  const auto must_die = [&] {
    // An unwinding thread may still have to wait for another one: destructors join.
    return kind == Wait::Interruptible && state(me.process).dying && std::uncaught_exceptions() == 0;
  };
  if (must_die()) throw Killed();
  me.state = Task::State::Waiting;
  me.wait = kind;
  me.waits_for = what;
  me.woken = false;
  if (!state(me.process).dying) me.failing = std::uncaught_exceptions() > 0;
  if (kind == Wait::Interruptible && state(me.process).dying) {
    // The dead are woken by nobody: a destructor of theirs that waits takes turns with the others, for a while.
    if (++me.turns_while_dying > 100'000) abort_with(me.name + " waits while it unwinds, for what never comes");
    make_ready(me);
  } else if (deadline <= now_) {
    make_ready(me);
  } else if (deadline != base::never) {
    me.alarm = Moment{deadline, next_moment_++};
    events_.emplace(*me.alarm, [this, &me] {
      me.alarm.reset();  // Its entry is gone already.
      make_ready(me);
    });
  }
  pass_baton(me);
  if (must_die()) throw Killed();
  return me.woken;
}

void Scheduler::wake(Task& task) {
  if (task.state != Task::State::Waiting) return;
  task.woken = true;
  make_ready(task);
}

void Scheduler::make_ready(Task& task) {
  if (task.alarm) events_.erase(*std::exchange(task.alarm, std::nullopt));
  task.state = Task::State::Ready;
  ProcessState& process = state(task.process);
  (process.frozen ? process.held_back : ready_).push_back(&task);
}

void Scheduler::pass_baton(Task& from) {
  Task* next = choose();
  if (next == &from) return;
  next->baton.release();
  from.baton.acquire();
}

Scheduler::Task* Scheduler::choose() {
  now_ += switch_cost;
  for (run_due_events(); ready_.empty(); run_due_events()) {
    if (events_.empty()) {
      give_up("nobody can ever run again");
    } else {
      now_ = events_.begin()->first.first;
    }
  }
  if (now_.time_since_epoch() > give_up_after_ && !no_end_) give_up("the world has not come to an end");
  const size_t picked = random_.below(ready_.size());
  Task* task = ready_[picked];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(picked));
  task->state = Task::State::Running;
  trace_.add(now_, Trace::Kind::Run, task->id);
  return task;
}

void Scheduler::run_due_events() {
  while (!events_.empty() && events_.begin()->first.first <= now_) {
    auto event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    in_event_ = true;
    event();
    in_event_ = false;
  }
}

void Scheduler::at(base::TimePoint when, std::function<void()> event) {
  events_.emplace(Moment{when, next_moment_++}, std::move(event));
}

void Scheduler::kill(Process process) {
  ProcessState& killed = state(process);
  if (killed.dying) return;
  killed.dying = true;
  trace_.add(now_, Trace::Kind::Crash, static_cast<uint64_t>(process));
  thaw(process);
  for (auto& task : tasks_) {
    if (task->process == process && task->state == Task::State::Waiting && task->wait == Wait::Interruptible) {
      make_ready(*task);
    }
  }
}

void Scheduler::freeze(Process process) {
  TORCH_CHECK(in_event_ || current_process() != process, "[sim] stop: a process cannot stop itself");
  ProcessState& stopped = state(process);
  if (stopped.frozen || stopped.dying) return;
  stopped.frozen = true;
  trace_.add(now_, Trace::Kind::Stop, static_cast<uint64_t>(process));
  const auto own = [&](Task* task) { return task->process == process; };
  std::copy_if(ready_.begin(), ready_.end(), std::back_inserter(stopped.held_back), own);
  std::erase_if(ready_, own);
}

void Scheduler::thaw(Process process) {
  ProcessState& resumed = state(process);
  if (!resumed.frozen) return;
  resumed.frozen = false;
  trace_.add(now_, Trace::Kind::Resume, static_cast<uint64_t>(process));
  ready_.insert(ready_.end(), resumed.held_back.begin(), resumed.held_back.end());
  resumed.held_back.clear();
}

bool Scheduler::frozen(Process process) const { return processes_[static_cast<size_t>(process)].frozen; }

void Scheduler::kill_all() {
  for (size_t i = 0; i < processes_.size(); ++i) kill(static_cast<Process>(i));
}

void Scheduler::give_up(const std::string& why) {
  if (no_end_) abort_with("even unwinding goes nowhere");
  const double seconds = std::chrono::duration<double>(now_.time_since_epoch()).count();
  no_end_ = std::make_exception_ptr(
      Error("[sim] after " + std::to_string(seconds) + " s of simulated time " + why + ":\n" + who_waits_for_what()));
  kill_all();
}

void Scheduler::abort_with(const std::string& why) const {
  fputs(("[sim] " + why + ":\n" + who_waits_for_what()).c_str(), stderr);
  std::abort();
}

std::string Scheduler::who_waits_for_what() const {
  std::ostringstream out;
  for (const auto& task : tasks_) {
    if (task->state == Task::State::Ended) continue;
    out << "  thread " << task->id << " \"" << task->name << "\"";
    if (task->state != Task::State::Waiting) {
      out << (frozen(task->process) ? " is stopped\n" : " could run\n");
      continue;
    }
    out << " waits for " << task->waits_for;
    if (task->alarm) {
      out << " until " << std::chrono::duration<double>(task->alarm->first.time_since_epoch()).count() << " s";
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace farad::net::sim
