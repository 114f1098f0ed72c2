#pragma once

#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

namespace farad::test {

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
  Group start(int size, WorkerOptions options = {}) { return Group(GetParam(), size, std::move(options)); }
};

/// Where remote functions wait until a test lets them go on.
class Door {
 public:
  void open() const { open_.set_value(); }
  /// Returns once open. Says before that somebody came.
  void pass() {
    came_.release();
    opened().wait();
  }
  Future<void> opened() const { return open_.future(); }
  /// True when that many have come.
  bool has_come(int count = 1);
  /// True if one more has come by now.
  bool came() { return came_.try_acquire(); }

 private:
  Promise<void> open_;
  std::counting_semaphore<> came_{0};
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
