#include "acer/actor_learner.h"

#include <ostream>

#include "acer/environments/registry.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

enum Purpose { world, choices, draws };

NetworkShape shape_of(const Settings& settings, const Environment& environment) {
  return settings.shape(environment.spec().observation_size, environment.spec().actions);
}

}  // namespace

int64_t choose(std::span<const float> probabilities, double at) {
  const auto last = static_cast<int64_t>(probabilities.size()) - 1;
  int64_t chosen = 0;
  while (chosen < last && (at -= static_cast<double>(probabilities[static_cast<size_t>(chosen)])) >= 0) ++chosen;
  return chosen;
}

ActorLearner::ActorLearner(const Settings& settings, Parameters& parameters, Tally& tally, int worker, int life)
    : settings_(settings),
      parameters_(parameters),
      tally_(tally),
      environment_(make_environment(settings.environment)),
      world_(random_of_worker(settings, worker, life, world)),
      choices_(random_of_worker(settings, worker, life, choices)),
      draws_(random_of_worker(settings, worker, life, draws)),
      network_(shape_of(settings, *environment_), Random(0)),
      average_(shape_of(settings, *environment_), Random(0)),
      actor_(shape_of(settings, *environment_)),
      gradient_(settings.rules),
      batch_(environment_->spec().observation_size, environment_->spec().actions),
      replay_(settings.capacity_of_worker(), environment_->spec().observation_size, environment_->spec().actions),
      observation_(static_cast<size_t>(environment_->spec().observation_size)),
      after_(observation_.size()) {}

int64_t ActorLearner::turn() {
  updates_.clear();
  act();
  const int64_t steps = batch_.steps();
  learn();
  tally_.on_policy.fetch_add(1);
  if (replay_.size() < settings_.start_of_worker()) return steps;
  for (int64_t left = draws_.poisson(settings_.replay_ratio); left > 0; --left) {
    replay();
    learn();
    tally_.off_policy.fetch_add(1);
  }
  return steps;
}

void ActorLearner::act() {
  // The same values from the first step of the window to its gradient, so that what is learned from is on-policy.
  parameters_.pull(*network_, *average_);
  actor_.copy(*network_);
  batch_.clear();
  if (between_episodes_) environment_->reset(world_, observation_);
  Outcome outcome;
  while (batch_.steps() < settings_.window && !outcome.over()) {
    actor_.forward(observation_);
    const int64_t action = choose(actor_.policy(), choices_.uniform());
    outcome = environment_->step({action}, world_, after_);
    batch_.add_step(observation_, action, outcome.reward, actor_.policy());
    replay_.add(observation_, action, actor_.policy(), outcome, after_);
    std::swap(observation_, after_);
    return_ += outcome.reward;
    ++length_;
  }
  batch_.end_window(outcome.terminated ? Ending::Terminated : Ending::Cut, observation_);
  between_episodes_ = outcome.over();
  if (between_episodes_) {
    tally_.add_episode(return_, length_);
    return_ = 0;
    length_ = 0;
  }
  tally_.steps.fetch_add(batch_.steps());
  tally_.replay_size.store(replay_.size());
}

void ActorLearner::replay() {
  // Pulled for each update: between those of one turn the others' updates, and its own, have moved the parameters.
  parameters_.pull(*network_, *average_);
  batch_.clear();
  for (int64_t i = 0; i < settings_.replay_windows; ++i) {
    tally_.add(Measure::ReplayAge, static_cast<double>(replay_.draw(settings_.window, draws_, batch_)));
    tally_.add(Measure::ReplayDraws, 1);
  }
}

void ActorLearner::learn() {
  tally_.add(gradient_.compute(*network_, *average_, batch_));
  updates_.push_back(parameters_.step(*network_, batch_.steps()));
}

void ActorLearner::save(std::ostream& out) const {
  for (const auto* random : {&world_, &choices_, &draws_}) put(out, random->state());
  put(out, environment_->save());
  put(out, between_episodes_);
  put(out, observation_);
  put(out, return_);
  put(out, length_);
  replay_.save(out);
}

void ActorLearner::load(std::istream& in) {
  for (auto* random : {&world_, &choices_, &draws_}) *random = Random(take<Random::State>(in));
  std::vector<double> there(take<uint64_t>(in));
  for (double& number : there) number = take<double>(in);
  between_episodes_ = take<bool>(in);
  take_into(in, observation_);
  return_ = take<double>(in);
  length_ = take<int64_t>(in);
  replay_.load(in);
  if (there.empty()) {
    between_episodes_ = true;
    return_ = 0;
    length_ = 0;
  } else {
    environment_->load(there, observation_);
  }
}

}  // namespace farad::acer
