#pragma once

#include <farad/worker.h>

#include <chrono>
#include <string>
#include <vector>

#include "acer/owner.h"

namespace farad::acer {

/// The workers of an owner, as it sees them: each is called once to learn, and comes back from that call when the
/// training is over. One that is lost is called anew as soon as it has been started again, and joined the group again.
/// One thread.
class Crew {
 public:
  /// Calls all members of the group but this one. `life`: how many lives of workers there were before, in a training
  /// that goes on.
  Crew(Worker& worker, const RRef<std::shared_ptr<Owner>>& owner, const Settings& settings, int life);

  /// Waits a little for something to change, and tells of who is lost and who is back. With `call_again` those who were
  /// lost are called.
  void look_after(bool call_again);

  /// The ranks of those who have not come back from their calls.
  std::vector<int> at_work() const;
  /// Whether one who was lost may return, if it is started again. One that has failed may not: it would fail again.
  bool may_return() const;
  /// What the last one of those who are gone ended with.
  const std::string& last_failure() const { return last_failure_; }
  /// How often one has come back.
  int returned() const { return returned_; }
  /// How many lives of workers there were; none of them has random numbers of another.
  int lives() const { return life_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { Working, Lost, Done, Failed };
  struct Member {
    int rank = 0;
    State state = State::Working;
    Future<int64_t> reply{};         ///< of its work; of one who is lost, to the question whether it is there again
    Clock::time_point asked_next{};  ///< not before that
  };

  void call(Member& member);
  void ask_whether_it_is_there(Member& member);
  /// It has replied, or will not any more.
  void look_at(Member& member);
  void take_up_again(Member& member);
  void tell(const char* what, const c10::Error& error);

  const Caller caller_;
  const RRef<std::shared_ptr<Owner>> owner_;
  const Settings settings_;
  int life_;
  std::vector<Member> members_;
  std::string last_failure_;
  int returned_ = 0;
};

/// Of this process: its worker has heard that the training is over.
bool has_heard_the_end();

}  // namespace farad::acer
