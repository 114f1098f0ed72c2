#pragma once

#include <array>

#include "acer/environments/environment.h"

namespace farad::acer {

/// A lander over a rough moon, with a pad in the middle: it is to touch down there with both legs and come to rest.
/// Actions 0 to 3 do nothing, or fire the left, the main or the right engine. Dynamics and rewards are those of
/// Gymnasium's LunarLander-v2 without wind; bodies are moved by Box2D, of which another version rounds otherwise.
///
/// Observed are place, velocity, angle and spin of the lander, as seen from the pad and scaled to about 1, and which
/// legs touch the ground. What comes nearer to rest on the pad is paid when it does, as is what goes away from it, so
/// that over an episode the sum is what the last state is worth more than the first; besides that engines cost fuel,
/// and the last step brings +100 at rest, -100 where the hull touches the ground or the picture is left at a side.
class LunarLander final : public Environment {
 public:
  LunarLander();
  ~LunarLander() override;

 private:
  class World;
  struct Step {
    int64_t action = 0;
    std::array<double, 2> dispersion{};  // of the engines
  };

  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return history_; }
  void set_state(std::span<const double> state) override;

  std::unique_ptr<World> world_;
  /// All that was drawn and done since the episode began. What Box2D keeps of contacts cannot be read, but bodies that
  /// are put up anew and moved by the same do the same, to the bit: this is the state.
  std::vector<double> history_;
};

}  // namespace farad::acer
