#pragma once

#include <farad/autograd.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/current.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "optim/checkpoint.h"
#include "optim/or_error.h"
#include "optim/participant.h"

namespace farad::optim {

/// The steps of one optimizer, seen from the worker that has it. One thread at a time.
class Coordinator {
 public:
  using Part = RRef<std::shared_ptr<Participant>>;
  using Word = std::function<Future<Standing>(int owner, StepId step)>;
  struct Services {
    Worker& worker;
    Service& own;  ///< of that worker
    std::function<Part(int owner, ShardPlan plan)> make;
    /// How a step ends. Calls without a deadline: an owner that is busy for longer than anybody waits must hear it all
    /// the same, because it keeps the step open, and its parameters, until it does.
    Word commit, abort;
    std::function<base::TimePoint()> now;
    std::chrono::milliseconds timeout{};  ///< of what the coordinator waits for; 0 = none
    std::shared_ptr<void> keep;           ///< keeps all of that
  };
  struct Group {
    std::vector<RRef<at::Tensor>> parameters;
    detail::OptimizerSettings settings;
  };
  /// Returns when every owner is ready.
  Coordinator(Services services, const std::vector<Group>& groups);

  /// False if `finite` was asked for and a gradient somewhere is not; then nothing has changed anywhere.
  bool step(std::vector<int64_t> contexts, double scale = 1, bool finite = false);

  void save(const std::string& directory);
  void load(const std::string& directory);

  double clip_grad_norm(int64_t context, double max_norm);
  void clip_grad_value(int64_t context, double max_value);

  /// Of each group, as they are now.
  std::vector<double>& rates() { return rates_; }
  /// What schedules go from; load() does not change them.
  std::vector<double>& base_rates() { return base_rates_; }

 private:
  /// What one owner said, or why it said nothing.
  struct Answer {
    Vote vote = Vote::Over;
    std::exception_ptr error;
  };
  /// At which owners a step is applied, by name.
  struct Ending {
    std::string applied, not_applied, unknown;
    base::Status why;  ///< of the first that is unknown
    /// False if it is applied nowhere, now and later.
    bool may_be_applied() const { return !applied.empty() || !unknown.empty(); }
  };
  class Turn;

  bool step_alone(const Recipe& recipe);
  /// The only owner has not answered in time: whether the step is taken there. Throws `timeout` if not.
  bool settle_late(uint64_t step, const std::exception_ptr& timeout);
  /// The first half, everywhere. False if a gradient is not finite; throws what went wrong. Then it is aborted.
  bool prepare(Recipe& recipe);
  std::vector<Answer> prepare_together(const Recipe& recipe);
  std::vector<Answer> prepare_in_order(const Recipe& recipe);
  void abort(uint64_t step);
  Ending commit(uint64_t step);
  /// Throws if it is not applied at every owner, as far as is known.
  void check(uint64_t step, const Ending& ending) const;
  std::vector<Future<Standing>> tell(const Word& word, uint64_t step) const;
  base::TimePoint deadline() const { return base::deadline_after(services_.now(), services_.timeout); }
  /// Throws Timeout if there is none by then; nothing is taken back.
  Standing answer_by(base::TimePoint until, const Future<Standing>& answer) const;
  [[noreturn]] void fail(uint64_t step, size_t part, const std::exception_ptr& error);
  std::string name_of(size_t part) const;
  std::string name_of_step(uint64_t step) const;
  /// Calls each part. That one is lost already is in its reply, not thrown: the others are called all the same.
  template <auto Fn, class... A>
  auto all(const A&... args) const;
  /// Takes every reply; throws what the first one threw, with its owner's name, once all have come.
  template <class Reply, class Take>
  void await(const char* operation, const std::vector<Reply>& replies, const Take& take) const;
  void write(const std::string& directory);

  const Services services_;
  const uint64_t optimizer_;
  std::vector<int> owners_;                    // in the order of their ranks
  std::vector<Part> parts_;                    // theirs
  std::vector<std::vector<int64_t>> numbers_;  // of their parameters
  CheckpointFacts facts_;
  std::vector<double> rates_, base_rates_;
  uint64_t step_ = 0;
  std::atomic<bool> busy_{false};
};

/// One step, or whatever else takes a while, at a time; its calls belong to no context.
class Coordinator::Turn {
 public:
  explicit Turn(Coordinator& coordinator)
      : busy_(coordinator.busy_), outside_(&coordinator.services_.own.gradients().contexts(), nullptr) {
    FARAD_CHECK(!busy_.exchange(true), "[optim] an optimizer is used by one thread at a time");
  }
  ~Turn() { busy_ = false; }
  Turn(const Turn&) = delete;

 private:
  std::atomic<bool>& busy_;
  const autograd::CurrentScope outside_;
};

}  // namespace farad::optim
