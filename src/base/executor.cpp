#include "base/executor.h"

#include <farad/error.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace farad::base {
namespace {

thread_local Executor* executor_of_this_thread = nullptr;

}  // namespace

struct Executor::Worker {
  std::unique_ptr<Parker> parker;
  std::unique_ptr<Thread> thread;
  bool ended = false;  // Guarded by the executor's mutex, like everything that decides who ends.
};

Executor::Executor(Runtime& runtime, std::string name, int threads)
    : runtime_(runtime), name_(std::move(name)), wanted_(std::max(1, threads)) {}

Executor::~Executor() { close(); }

bool Executor::post(std::function<void()>&& task) {
  std::vector<std::unique_ptr<Worker>> ended;
  Lock lock(mutex_);
  if (closed_) return false;
  tasks_.push_back(std::move(task));
  if (idle_.empty()) {
    ended = add_thread_if_needed();
    if (running_ == waiting_) {  // There is no thread for it, and those that there are may wait for just this task.
      task = std::move(tasks_.back());
      tasks_.pop_back();
      lock.unlock();  // What it holds goes after the lock.
      return false;
    }
    lock.unlock();
  } else {
    Worker* sleeper = idle_.back();
    idle_.pop_back();
    sleeper->parker->unpark();  // Under the lock: once out of it, a surplus worker may end and be destroyed.
    lock.unlock();
  }
  return true;
}

std::vector<std::unique_ptr<Executor::Worker>> Executor::add_thread_if_needed() {
  if (tasks_.empty() || !idle_.empty() || running_ - waiting_ >= wanted_) return {};
  auto ended = take_ended();
  auto worker = std::make_unique<Worker>();
  worker->parker = runtime_.make_parker();
  const auto live = [this, self = worker.get()] {
    try {
      work(*self);
    } catch (...) {  // A simulated crash unwinds it, out of its task or its sleep.
      Lock lock(mutex_);
      std::erase(idle_, self);
      end(*self);
      throw;
    }
  };
  try {
    worker->thread = runtime_.start(name_, live);
  } catch (const std::system_error&) {  // The system has no thread to spare: see who asks.
    return ended;
  }
  workers_.push_back(std::move(worker));
  ++running_;
  return ended;
}

std::vector<std::unique_ptr<Executor::Worker>> Executor::take_ended() {
  std::vector<std::unique_ptr<Worker>> ended;
  auto alive = std::stable_partition(workers_.begin(), workers_.end(), [](const auto& w) { return !w->ended; });
  std::move(alive, workers_.end(), std::back_inserter(ended));
  workers_.erase(alive, workers_.end());
  return ended;
}

void Executor::work(Worker& self) {
  executor_of_this_thread = this;
  Lock lock(mutex_);
  while (true) {
    if (!tasks_.empty()) {
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // What it holds goes before the lock is taken: destructors may post.
      lock.relock();
      continue;
    }
    if (closed_ || running_ - waiting_ > wanted_) break;
    idle_.push_back(&self);
    lock.unlock();
    self.parker->park(never);
    lock.relock();
    std::erase(idle_, &self);  // Still there if close() woke everybody.
  }
  end(self);
}

void Executor::end(Worker& self) {
  --running_;
  self.ended = true;
}

void Executor::close() {
  Lock lock(mutex_);
  closed_ = true;
  for (Worker* sleeper : idle_) sleeper->parker->unpark();
  // A task that waits may still make a worker for those queued behind it, so look again after joining.
  while (!workers_.empty()) {
    std::vector<std::unique_ptr<Worker>> workers;
    workers.swap(workers_);
    lock.unlock();
    for (auto& worker : workers) worker->thread.reset();
    workers.clear();
    lock.relock();
  }
}

int Executor::threads() const {
  Lock lock(mutex_);
  return running_;
}

Executor::Waiting::Waiting() : executor_(executor_of_this_thread) {
  if (!executor_) return;
  std::vector<std::unique_ptr<Worker>> ended;
  Lock lock(executor_->mutex_);
  ++executor_->waiting_;
  ended = executor_->add_thread_if_needed();
  const size_t stranded = executor_->running_ == executor_->waiting_ ? executor_->tasks_.size() : 0;
  if (stranded > 0) --executor_->waiting_;
  lock.unlock();
  if (stranded == 0) return;
  throw Error("[base] \"" + executor_->name_ + "\" cannot wait: " + std::to_string(stranded) +
              " tasks need a thread, and the system has none to spare (ulimit -u; pids of a container)");
}

Executor::Waiting::~Waiting() {
  if (!executor_) return;
  Lock lock(executor_->mutex_);
  --executor_->waiting_;
}

}  // namespace farad::base
