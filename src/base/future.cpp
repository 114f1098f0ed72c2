#include <farad/future.h>

#include <algorithm>
#include <utility>

#include "base/executor.h"
#include "base/runtime.h"

namespace farad::detail {
namespace {

thread_local const Refusal* refusal_here = nullptr;

}  // namespace

Refusal::Refusal(std::exception_ptr why) : why_(std::move(why)), before_(std::exchange(refusal_here, this)) {}
Refusal::~Refusal() { refusal_here = before_; }
std::exception_ptr Refusal::here() { return refusal_here ? refusal_here->why_ : nullptr; }

bool FutureCore::wait(std::chrono::steady_clock::time_point deadline) {
  if (ready()) return read();
  if (host_) {
    host_->wait(*this, deadline);
    return ready() && read();
  }
  // The parker is shared with the wake, because this wait may have timed out and returned when the wake comes.
  std::shared_ptr<base::Parker> parker = base::Runtime::real().make_parker();
  const auto wake = notify([parker] { parker->unpark(); });
  base::Executor::Waiting waiting;
  while (!ready() && parker->park(deadline)) {
  }
  if (ready()) return read();
  forget(wake);
  return false;
}

bool FutureCore::read() {
  if (reader_) reader_();
  return true;
}

void FutureCore::run(std::function<void()> next) {
  if (reader_) {
    next = [reader = reader_, next = std::move(next)] {
      reader();
      next();
    };
  }
  host_ ? host_->run(std::move(next)) : next();
}

bool FutureCore::wait_for(std::chrono::steady_clock::duration span) {
  const auto now = host_ ? host_->now() : base::Runtime::real().now();
  return wait(span >= base::never - now ? base::never : now + span);
}

void FutureCore::when_ready(std::function<void()> next) {
  {
    std::lock_guard lock(mutex_);
    if (!ready()) return nexts_.push_back(std::move(next));
  }
  run(std::move(next));
}

void FutureCore::when_ready_at(const std::shared_ptr<FutureHost>& host, std::function<void()> next) {
  if (!host) return when_ready(std::move(next));
  next = host->bind(std::move(next));
  if (host_) return when_ready(std::move(next));
  // Whoever completes it may be anybody. That it is read there as well is no harm.
  when_ready([this, host, next = std::move(next)]() mutable {
    host->run([this, next = std::move(next)] { read(), next(); });
  });
}

uint64_t FutureCore::notify(std::function<void()> wake) {
  {
    std::lock_guard lock(mutex_);
    if (!ready()) return wakes_.emplace_back(++told_, std::move(wake)).first;
  }
  wake();
  return 0;
}

void FutureCore::forget(uint64_t wake) {
  std::function<void()> let_go;  // Not under the lock.
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(wakes_.begin(), wakes_.end(), [&](const auto& each) { return each.first == wake; });
  if (found == wakes_.end()) return;
  let_go = std::move(found->second);
  wakes_.erase(found);
}

bool FutureCore::complete(const std::function<void()>& fill) {
  if (!claim()) return false;
  finish(fill);
  return true;
}

bool FutureCore::claim() {
  std::lock_guard lock(mutex_);
  return !std::exchange(completing_, true);
}

void FutureCore::finish(const std::function<void()>& fill) {
  // Copying a value is foreign code, so no lock is held; `completing_` keeps all others out.
  try {
    fill();
  } catch (...) {
    error_ = std::current_exception();
  }
  decltype(wakes_) wakes;
  decltype(nexts_) nexts;
  decltype(cancel_) cancel;
  {
    std::lock_guard lock(mutex_);
    ready_.store(true, std::memory_order_release);
    wakes.swap(wakes_);
    nexts.swap(nexts_);
    cancel.swap(cancel_);  // Only to be destroyed, and not under the lock.
  }
  for (auto& [id, wake] : wakes) wake();
  for (auto& next : nexts) run(std::move(next));
}

bool FutureCore::fail(std::exception_ptr error) {
  return complete([&] { error_ = std::move(error); });
}

void FutureCore::set_reader(std::function<void()> reader) {
  std::lock_guard lock(mutex_);
  if (!completing_) reader_ = std::move(reader);
}

void FutureCore::set_cancel(std::function<std::string()> hook) {
  {
    std::lock_guard lock(mutex_);
    if (!cancelled_ && !std::exchange(given_up_, false)) {
      if (!completing_) cancel_ = std::move(hook);
      return;
    }
  }
  hook();
}

std::string FutureCore::give_up() {
  {
    std::lock_guard lock(mutex_);
    if (!completing_ && !cancel_) {
      given_up_ = true;
      return {};
    }
  }
  return cancel();
}

std::string FutureCore::cancel() {
  std::function<std::string()> hook;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(completing_, true)) return {};
    cancelled_ = true;
    hook.swap(cancel_);
  }
  // The hook first: it knows what the error has to name. Nobody else completes it meanwhile.
  std::string what;
  std::exception_ptr thrown;
  try {
    if (hook) what = hook();
  } catch (...) {
    thrown = std::current_exception();
  }
  finish([&] {
    error_ = std::make_exception_ptr(
        Cancelled((what.empty() ? "[future] " : what + ": ") + "cancelled by the one who waited for it"));
  });
  if (thrown) std::rethrow_exception(thrown);
  return what;
}

}  // namespace farad::detail
