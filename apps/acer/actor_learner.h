#pragma once

#include <iosfwd>
#include <memory>
#include <vector>

#include "acer/agent.h"
#include "acer/batch.h"
#include "acer/board.h"
#include "acer/environments/environment.h"
#include "acer/parameters.h"
#include "acer/replay.h"
#include "acer/settings.h"

namespace farad::acer {

/// One worker: acts in an environment of its own and learns from what it has done, just now and before. What it does
/// follows from the settings, its number and the parameters that it is given; nothing else.
class ActorLearner {
 public:
  /// `life`: how many processes this worker had before.
  ActorLearner(const Settings& settings, Parameters& parameters, Tally& tally, int worker, int life);

  /// One update: from what it does now, of at most a window of steps, or from what it did before, of which, once there
  /// is enough to replay, as many follow as Poisson's distribution says. Gives how many steps it took.
  int64_t update();
  /// The next one from what it does now, and all that follow it.
  int64_t turn();

  /// The two kinds of what an update is made of, which update() alternates between; the audit looks at them. Both pull
  /// first. Acts for at most a window of steps, with the values that were pulled.
  const Batch& act();
  /// Draws windows from what it did before, of which there must be some.
  const Batch& replay();
  /// What it did before.
  const Replay& stored() const { return replay_; }
  const Spec& spec() const { return environment_->spec(); }

  /// All that decides what it does next but for the parameters.
  void save(std::ostream& out) const;
  void load(std::istream& in);

 private:
  void learn();

  const Settings settings_;
  Parameters& parameters_;
  Tally& tally_;
  const std::unique_ptr<Environment> environment_;
  Random world_, choices_, draws_, noise_;
  const std::unique_ptr<Agent> agent_;
  Batch batch_;
  Replay replay_;
  std::vector<float> observation_, after_;
  bool between_episodes_ = true;
  double return_ = 0;
  int64_t length_ = 0;
  int64_t replays_left_ = 0;
};

}  // namespace farad::acer
