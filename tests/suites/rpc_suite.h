#pragma once

#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/runtime.h"

namespace farad::test {

/// Time and threads of the running test, which takes both from here alone: on "sim" they are those of a simulated
/// world.
base::Runtime& runtime();

/// A thread of runtime().
class Thread {
 public:
  explicit Thread(std::function<void()> run) : thread_(runtime().start("test", std::move(run))) {}
  void join() { thread_.reset(); }

 private:
  std::unique_ptr<base::Thread> thread_;
};

/// Workers of one group in this process, on one transport. What is left of them at the end is closed, together.
class Group {
 public:
  Group(const std::string& transport, int size, WorkerOptions options = {});
  ~Group();
  Group(const Group&) = delete;

  Worker& operator[](int rank) { return *workers_[rank]; }
  int size() const { return static_cast<int>(workers_.size()); }

  /// Ends one without close(), as far as that is possible in one process.
  void drop(int rank) { workers_[rank].reset(); }
  /// Takes one out; the group does not close it.
  Worker take(int rank);
  /// Runs `act` for each that is left, all at once, each on a thread of its own.
  void each(const std::function<void(Worker&)>& act);

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// What calls promise (include/farad/worker.h). Workers live in this process, so remote functions can meet the test in
/// its variables; what needs a process of its own is tested in tests/process/rpc.
class RpcSuite : public testing::TestWithParam<std::string> {
 protected:
  /// Runs `test`; on "sim" for each of a few seeds, as the first thread of a world.
  void play(const std::function<void()>& test);
  Group start(int size, WorkerOptions options = {}) { return Group(GetParam(), size, std::move(options)); }
};

/// As TEST_P(RpcSuite, name), but what follows is a function, which a simulated thread can run.
#define RPC_TEST(name)                   \
  static void name();                    \
  TEST_P(RpcSuite, name) { play(name); } \
  static void name()

/// For RPC_TEST: workers on the transport of the running test.
inline Group start(int size, WorkerOptions options = {}) { return {RpcSuite::GetParam(), size, std::move(options)}; }

/// Where remote functions wait until a test lets them go on. Any thread.
class Door {
 public:
  void open();
  /// Returns once open. Says before that somebody came.
  void pass();
  Future<void> opened() const { return open_.future(); }
  /// True when that many have come.
  bool has_come(int count = 1);
  /// True if one more has come by now.
  bool came() { return take(1); }

 private:
  bool take(int count);

  Promise<void> open_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<base::Parker>> inside_;  // Those who wait for it to open.
  std::shared_ptr<base::Parker> watcher_;              // Who waits for somebody to come.
  int came_ = 0;
};

/// True as soon as `done` is, false if it takes longer than anything here should.
bool eventually(const std::function<bool()>& done);

/// The message of what `act` throws, which must be an E.
template <class E>
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "something else was thrown: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace farad::test
