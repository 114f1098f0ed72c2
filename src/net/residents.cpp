#include "net/residents.h"

#include <c10/util/ScopeExit.h>

#include <system_error>
#include <utility>

#include "net/driver.h"

namespace farad::net {
namespace {

/// Ticks without a task after which the watchdog goes to sleep: waking it costs a caller more than a tick costs us.
constexpr int ticks_awake = 16;

/// Whose resident this thread is, while it polls; and whether it got a task meanwhile.
thread_local const Residents* resident_polls = nullptr;
thread_local bool has_tasks = false;

}  // namespace

struct Residents::Resident {
  std::unique_ptr<base::Parker> parker;
  std::unique_ptr<base::Thread> thread;
  std::atomic<uint64_t> batches{0};  // Odd while it runs tasks.
  std::atomic<bool> ended{false};
};

Residents::Residents(base::Runtime& runtime, Bell& bell, Driver& driver)
    : runtime_(runtime),
      bell_(bell),
      driver_(driver),
      watch_parker_(runtime.make_parker()),
      ended_(runtime.make_parker()) {}

Residents::~Residents() {
  stop();
  join();
}

void Residents::start() {
  base::Lock lock(mutex_);
  acting_.store(make_resident());
}

Residents::Resident* Residents::make_resident() {
  auto made = std::make_unique<Resident>();
  all_.reserve(all_.size() + 1);  // Once it runs nothing may fail.
  made->parker = runtime_.make_parker();
  made->thread = runtime_.start("farad-resident", [this, self = made.get()] { reside(*self); });
  return all_.emplace_back(std::move(made)).get();
}

void Residents::reside(Resident& self) {
  // Also if a simulated crash unwinds us: join() waits for this.
  const auto end = c10::make_scope_exit([&] {
    self.ended.store(true);
    ended_->unpark();
  });
  while (!stopping_.load()) {
    if (acting_.load() != &self) {
      {
        base::Lock lock(mutex_);
        if (acting_.load() != &self) spare_.push_back(&self);
      }
      while (acting_.load() != &self && !stopping_.load()) self.parker->park(base::never);
      continue;
    }
    has_tasks = false;
    bool drove = false;
    if (driver_.take_role()) {
      drove = true;
      // Also if a handler throws, or a simulated crash unwinds us.
      const auto pass = c10::make_scope_exit([&] { driver_.lay_down_role(); });
      resident_polls = this;
      const auto leave = c10::make_scope_exit([] { resident_polls = nullptr; });
      bool more = true;
      while (more && !has_tasks && !stopping_.load()) {
        bell_.clear();
        more = driver_.poll_once();
      }
    }
    if (has_tasks) {
      run_tasks(self);  // We look again afterwards: nobody has to be woken meanwhile.
    } else if (!stopping_.load() && !(drove && bell_.linger())) {
      driver_.vacate();
      bell_.sleep_resident();
    }
  }
  run_tasks(self);  // What was taken in is answered, or at least ends.
}

bool Residents::run_in_place(Task& task) {
  if (resident_polls != this) return false;
  base::Lock lock(mutex_);
  if (!watchdog_ && !stopping_.load()) {
    try {
      watchdog_ = runtime_.start("farad-watchdog", [this] { watch(); });
    } catch (const std::system_error&) {  // Without one, nothing would help who stands behind what is long after all.
      return false;
    }
  }
  tasks_.push_back(std::move(task));
  has_tasks = true;
  return true;
}

void Residents::run_tasks(Resident& self) {
  self.batches.fetch_add(1, std::memory_order_seq_cst);
  const auto end = c10::make_scope_exit([&] { self.batches.fetch_add(1, std::memory_order_seq_cst); });
  if (watch_asleep_.load(std::memory_order_seq_cst)) watch_parker_->unpark();
  while (true) {
    Task task;
    {
      base::Lock lock(mutex_);
      if (acting_.load() != &self || tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Residents::watch() {
  const Resident* seen = nullptr;
  uint64_t seen_batch = 0;
  int quiet = 0;
  while (!stopping_.load()) {
    Resident* const acting = acting_.load();
    const uint64_t batch = acting->batches.load(std::memory_order_seq_cst);
    const bool same = acting == seen && batch == seen_batch;
    const bool runs = batch % 2 == 1;
    if (same && runs) relieve(*acting, batch);
    quiet = same && !runs ? quiet + 1 : 0;
    seen = acting;
    seen_batch = batch;
    if (quiet < ticks_awake) {
      watch_parker_->park(runtime_.now() + tick);
      continue;
    }
    watch_asleep_.store(true, std::memory_order_seq_cst);
    // Who begins a batch after this look sees that we sleep.
    if (acting->batches.load(std::memory_order_seq_cst) == batch && !stopping_.load()) watch_parker_->park(base::never);
    watch_asleep_.store(false, std::memory_order_seq_cst);
    quiet = 0;
  }
}

void Residents::relieve(Resident& held_up, uint64_t batch) {
  std::deque<Task> behind;
  {
    base::Lock lock(mutex_);
    if (stopping_.load() || held_up.batches.load() != batch) return;
    Resident* next = nullptr;
    if (spare_.empty()) {
      try {
        next = make_resident();
      } catch (const std::system_error&) {  // The system has no thread to spare. Perhaps at the next tick.
        return;
      }
    } else {
      next = spare_.back();
      spare_.pop_back();
    }
    acting_.store(next);
    next->parker->unpark();
    behind.swap(tasks_);
  }
  for (auto& task : behind) overflow_(std::move(task));
}

void Residents::stop() {
  base::Lock lock(mutex_);
  if (stopping_.exchange(true)) return;
  for (auto& resident : all_) resident->parker->unpark();
  watch_parker_->unpark();
}

void Residents::join() {
  std::unique_ptr<base::Thread> watchdog;
  std::vector<std::unique_ptr<Resident>> all;
  {
    base::Lock lock(mutex_);
    watchdog.swap(watchdog_);
  }
  watchdog.reset();  // First: it looks at the others.
  {
    base::Lock lock(mutex_);
    all.swap(all_);
  }
  for (auto& resident : all) {
    // Again and again: it may have looked whether to stop just before, and not have been asleep yet when it was woken.
    while (!resident->ended.load()) {
      bell_.wake_resident();
      ended_->park(runtime_.now() + tick);
    }
  }
}

}  // namespace farad::net
