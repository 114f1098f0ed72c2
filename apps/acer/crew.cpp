#include "acer/crew.h"

#include <farad/error.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include "acer/actor_learner.h"

namespace farad::acer {
namespace {

using OwnerRef = RRef<std::shared_ptr<Owner>>;
using std::chrono::milliseconds;

constexpr auto look_every = milliseconds(20);
/// How often one who is lost is asked for: it joins again, if at all, some seconds later.
constexpr auto ask_every = milliseconds(300);

std::atomic<bool> end_was_heard{false};

/// What each worker is called for. Gives how many steps it took.
int64_t learn_by_calls(const OwnerRef& owner, const Settings& settings, int worker, int life) {
  const auto tally = std::make_unique<Tally>();
  OwnedParameters parameters(owner, *tally, worker);
  ActorLearner learner(settings, parameters, *tally, worker, life);
  while (!parameters.told_to_stop()) learner.update();
  end_was_heard = true;
  return tally->steps;
}

int64_t is_there() { return 0; }

}  // namespace

bool has_heard_the_end() { return end_was_heard; }

Crew::Crew(Worker& worker, const OwnerRef& owner, const Settings& settings, int life)
    : caller_(worker.with({.timeout = milliseconds(0)})),  // What they are called for takes as long as the training.
      owner_(owner),
      settings_(settings),
      life_(life) {
  for (int rank = 1; rank < worker.size(); ++rank) call(members_.emplace_back(Member{rank}));
}

void Crew::call(Member& member) {
  member.reply = caller_.rpc_async<learn_by_calls>(member.rank, owner_, settings_, member.rank - 1, life_);
  member.state = State::Working;
}

void Crew::ask_whether_it_is_there(Member& member) {
  member.asked_next = Clock::now() + ask_every;
  try {
    member.reply = caller_.rpc_async<is_there>(member.rank);
  } catch (const PeerLost&) {  // It is not.
  }
}

void Crew::look_after(bool call_again) {
  for (auto& member : members_) {
    if (member.reply.valid() && member.reply.ready()) look_at(member);
    if (member.state != State::Lost || member.reply.valid()) continue;
    if (call_again && Clock::now() >= member.asked_next) ask_whether_it_is_there(member);
  }
  const auto working =
      std::find_if(members_.begin(), members_.end(), [](const auto& member) { return member.state == State::Working; });
  if (working != members_.end()) {
    working->reply.wait_for(look_every);
  } else if (may_return()) {
    std::this_thread::sleep_for(look_every);
  }
}

void Crew::look_at(Member& member) {
  const auto reply = std::exchange(member.reply, {});
  const bool was_lost = member.state == State::Lost;
  try {
    reply.wait();
    member.state = State::Done;
    if (was_lost) take_up_again(member);
  } catch (const PeerLost& error) {
    member.state = State::Lost;
    if (!was_lost) tell("is lost, and the others go on; it may be started again", error);
  } catch (const c10::Error& error) {
    member.state = State::Failed;
    tell("has failed, and the others go on", error);
  }
}

void Crew::take_up_again(Member& member) {
  ++life_;
  call(member);
  ++returned_;
  std::fprintf(stderr, "farad acer: rank %d is there again, and takes up its work\n", member.rank);
}

void Crew::tell(const char* what, const c10::Error& error) {
  last_failure_ = error.what_without_backtrace();
  std::fprintf(stderr, "farad acer: a worker %s: %s\n", what, last_failure_.c_str());
}

std::vector<int> Crew::at_work() const {
  std::vector<int> ranks;
  for (const auto& member : members_) {
    if (member.state == State::Working) ranks.push_back(member.rank);
  }
  return ranks;
}

bool Crew::may_return() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member.state == State::Lost; });
}

}  // namespace farad::acer
