#include "acer/actor_learner.h"

#include <ostream>

#include "acer/environments/registry.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

enum Purpose { world, choices, draws, noise };

}  // namespace

ActorLearner::ActorLearner(const Settings& settings, Parameters& parameters, Tally& tally, int worker, int life)
    : settings_(settings),
      parameters_(parameters),
      tally_(tally),
      environment_(make_environment(settings.environment)),
      world_(random_of_worker(settings, worker, life, world)),
      choices_(random_of_worker(settings, worker, life, choices)),
      draws_(random_of_worker(settings, worker, life, draws)),
      noise_(random_of_worker(settings, worker, life, noise)),
      agent_(make_agent(settings, environment_->spec())),
      batch_(environment_->spec().observation_size, environment_->spec().actions, environment_->spec().amounts),
      replay_(settings.capacity_of_worker(), environment_->spec().observation_size, environment_->spec().actions,
              environment_->spec().amounts, settings.rules.defect == Defect::TerminalNeverSampled),
      observation_(static_cast<size_t>(environment_->spec().observation_size)),
      after_(observation_.size()) {
  environment_->observe_in_units();
}

int64_t ActorLearner::update() {
  if (replays_left_ > 0) {
    --replays_left_;
    replay();
    learn();
    tally_.off_policy.fetch_add(1);
    return 0;
  }
  act();
  const int64_t steps = batch_.steps();
  learn();
  tally_.on_policy.fetch_add(1);
  if (replay_.size() >= settings_.start_of_worker()) replays_left_ = draws_.poisson(settings_.replay_ratio);
  return steps;
}

int64_t ActorLearner::turn() {
  int64_t steps = update();
  while (replays_left_ > 0) steps += update();
  return steps;
}

const Batch& ActorLearner::act() {
  // The same values from the first step of the window to its gradient, so that what is learned from is on-policy.
  parameters_.pull(agent_->network(), agent_->average());
  agent_->follow_network();
  batch_.clear();
  if (between_episodes_) environment_->reset(world_, observation_);
  Outcome outcome;
  while (batch_.steps() < settings_.window && !outcome.over()) {
    const auto decision = agent_->act(observation_, choices_);
    outcome = environment_->step(decision.done, world_, after_);
    return_ += outcome.reward;
    outcome.reward *= settings_.reward_scale;
    batch_.add_step(observation_, decision.drawn, outcome.reward, decision.behaviour);
    replay_.add(observation_, decision.drawn, decision.behaviour, outcome, after_);
    std::swap(observation_, after_);
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
  batch_.draw_noise(agent_->actions_drawn(), noise_);
  return batch_;
}

const Batch& ActorLearner::replay() {
  // Pulled for each update: between those of one turn the others' updates, and its own, have moved the parameters.
  parameters_.pull(agent_->network(), agent_->average());
  batch_.clear();
  for (int64_t i = 0; i < settings_.replay_windows; ++i) {
    tally_.add(Measure::ReplayAge, static_cast<double>(replay_.draw(settings_.window, draws_, batch_)));
    tally_.add(Measure::ReplayDraws, 1);
  }
  batch_.draw_noise(agent_->actions_drawn(), noise_);
  return batch_;
}

void ActorLearner::learn() {
  tally_.add(agent_->learn(batch_));
  parameters_.step(agent_->network(), batch_.steps());
}

void ActorLearner::save(std::ostream& out) const {
  for (const auto* random : {&world_, &choices_, &draws_, &noise_}) put(out, random->state());
  put(out, environment_->save());
  put(out, between_episodes_);
  put(out, observation_);
  put(out, return_);
  put(out, length_);
  put(out, replays_left_);
  replay_.save(out);
}

void ActorLearner::load(std::istream& in) {
  for (auto* random : {&world_, &choices_, &draws_, &noise_}) *random = Random(take<Random::State>(in));
  std::vector<double> there(take<uint64_t>(in));
  for (double& number : there) number = take<double>(in);
  between_episodes_ = take<bool>(in);
  take_into(in, observation_);
  return_ = take<double>(in);
  length_ = take<int64_t>(in);
  replays_left_ = take<int64_t>(in);
  replay_.load(in);
  if (there.empty()) {
    replay_.cut_off();
    between_episodes_ = true;
    return_ = 0;
    length_ = 0;
  } else {
    environment_->load(there, observation_);
  }
}

}  // namespace farad::acer
