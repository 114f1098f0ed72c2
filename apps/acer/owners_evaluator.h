#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "acer/evaluation.h"
#include "acer/processes.h"

namespace farad::acer {

/// The process that evaluates what an owner has. It is forked off before the group is joined, because beside the
/// threads of a group that is not safe any more, and told which model to look at when there is one. One thread.
class OwnersEvaluator {
 public:
  /// Forks.
  explicit OwnersEvaluator(const Settings& settings);
  ~OwnersEvaluator() { end(); }
  OwnersEvaluator(const OwnersEvaluator&) = delete;

  /// The shared model of that name, on this machine.
  void look_at(const std::string& model);

  /// Whether it was asked and has not answered.
  bool is_busy() const { return busy_; }
  /// False if it is gone.
  bool ask(int64_t steps);
  /// What it was asked for, if that comes in time. If it has ended instead it is busy no more.
  std::optional<Evaluation> hear(std::chrono::milliseconds wait);
  /// How it ended.
  const std::string& ending() const { return ending_; }

  void end();

 private:
  bool is_there();

  Pipe requests_, results_;
  pid_t process_ = -1;
  bool busy_ = false;
  std::string ending_;
};

}  // namespace farad::acer
