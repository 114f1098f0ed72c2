#include "base/runtime.h"

#include <pthread.h>

#include <atomic>
#include <thread>

#include "base/futex.h"

namespace farad::base {
namespace {

class FutexParker final : public Parker {
 public:
  bool park(TimePoint deadline) override {
    while (true) {
      uint32_t state = woken;
      if (state_.compare_exchange_strong(state, empty, std::memory_order_acquire)) return true;
      state_.compare_exchange_strong(state = empty, asleep, std::memory_order_relaxed);
      if (!futex_wait(state_, asleep, deadline)) return state_.exchange(empty, std::memory_order_acquire) == woken;
    }
  }

  void unpark() override {
    if (state_.exchange(woken, std::memory_order_release) == asleep) futex_wake(state_, 1);
  }

 private:
  static constexpr uint32_t empty = 0, woken = 1, asleep = 2;
  std::atomic<uint32_t> state_{empty};
};

class SystemThread final : public Thread {
 public:
  SystemThread(std::string name, std::function<void()> run)
      : thread_([name = std::move(name), run = std::move(run)] {
          pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // The kernel takes 15 characters.
          run();
        }) {}
  ~SystemThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

class SystemRuntime final : public Runtime {
 public:
  TimePoint now() const override { return Clock::now(); }
  std::unique_ptr<Parker> make_parker() override { return std::make_unique<FutexParker>(); }
  std::unique_ptr<Thread> start(std::string name, std::function<void()> run) override {
    return std::make_unique<SystemThread>(std::move(name), std::move(run));
  }
};

}  // namespace

Runtime& Runtime::real() {
  static SystemRuntime runtime;
  return runtime;
}

}  // namespace farad::base
