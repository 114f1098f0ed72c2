#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "acer/environments/environment.h"

namespace farad::acer {

/// An environment that is another program, in whatever language: each request is one line of JSON on its standard
/// input, and so is each reply on its standard output.
///
///     (first of all)                      {"name": "Walk", "observation": 7, "actions": 2, "time_limit": 100}
///     {"reset": 1234567}                  {"observation": [0, 0, 0, 1, 0, 0, 0]}
///     {"step": 1}                         {"observation": [...], "reward": 0.5, "terminated": false}
///
/// One that is acted in by amounts says how many numbers an action is made of, and how large they may be, in place of
/// "actions"; it is told them cut to that:
///
///     (first of all)                      {"name": "Throttle", "observation": 2, "amounts": 2, "limit": 1.5}
///     {"step": [-0.25, 1.5]}              {"observation": [...], "reward": -0.1}
///
/// "time_limit", "solved", "reward_scale", "terminated" and "truncated" may be left out. The number with reset is a
/// seed. The program ends when its input does.
class PipeEnvironment final : public Environment {
 public:
  /// Runs the command with sh. Throws Error if it does not say what it is within ten seconds.
  explicit PipeEnvironment(const std::string& command);
  ~PipeEnvironment() override;

 private:
  class Program;
  PipeEnvironment(const std::string& command, std::unique_ptr<Program> program);

  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;

  std::unique_ptr<Program> program_;
  std::vector<float> seen_;
};

}  // namespace farad::acer
