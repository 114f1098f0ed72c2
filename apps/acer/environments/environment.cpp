#include "acer/environments/environment.h"

#include <farad/error.h>

namespace farad::acer {

void Environment::reset(Random& random, std::span<float> observation) {
  begin(random);
  elapsed_ = 0;
  tell(observation);
}

Outcome Environment::step(const Action& action, Random& random, std::span<float> observation) {
  if (elapsed_ < 0) throw Error("[acer] " + spec_.name + ": step without an episode; reset() begins one");
  if (spec_.actions > 0 && (action.choice < 0 || action.choice >= spec_.actions)) {
    throw Error("[acer] " + spec_.name + ": there is no action " + std::to_string(action.choice) + ", only 0 to " +
                std::to_string(spec_.actions - 1));
  }
  if (static_cast<int64_t>(action.amounts.size()) != spec_.amounts) {
    throw Error("[acer] " + spec_.name + ": an action has " + std::to_string(spec_.amounts) + " amounts, not " +
                std::to_string(action.amounts.size()));
  }
  auto outcome = advance(action, random);
  ++elapsed_;
  if (spec_.time_limit > 0 && elapsed_ >= spec_.time_limit && !outcome.terminated) outcome.truncated = true;
  if (outcome.over()) elapsed_ = -1;
  tell(observation);
  return outcome;
}

void Environment::tell(std::span<float> observation) const {
  observe(observation);
  if (!in_units_) return;
  for (size_t i = 0; i < spec_.units.size(); ++i) observation[i] /= spec_.units[i];
}

std::vector<double> Environment::save() const {
  auto saved = state();
  if (!saved.empty()) saved.push_back(static_cast<double>(elapsed_));
  return saved;
}

void Environment::load(std::span<const double> saved, std::span<float> observation) {
  if (saved.empty()) throw Error("[acer] " + spec_.name + ": nothing was saved that could be loaded");
  set_state(saved.first(saved.size() - 1));
  elapsed_ = static_cast<int64_t>(saved.back());
  tell(observation);
}

void Environment::set_state(std::span<const double>) {
  throw Error("[acer] " + spec_.name + " cannot be put into a state");
}

}  // namespace farad::acer
