#include "acer/settings.h"

#include <farad/error.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace farad::acer {
namespace {

constexpr std::array policies{
    std::pair{shared::Policy::Locked, "locked"}, std::pair{shared::Policy::Hogwild, "hogwild"},
    std::pair{shared::Policy::AllReduced, "allreduced"}, std::pair{shared::Policy::Managed, "managed"},
    std::pair{shared::Policy::Averaged, "averaged"}};
constexpr std::array planted{std::pair{Fault::None, "none"}, std::pair{Fault::Accumulate, "accumulate"},
                             std::pair{Fault::FreezeFirst, "freeze-first"},
                             std::pair{Fault::StaleAverage, "stale-average"}};

template <class All>
auto named(const char* kind, const std::string& name, const All& all) {
  std::string names;
  for (const auto& [value, known] : all) {
    if (name == known) return value;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw Error(std::string("[acer] there is no ") + kind + " \"" + name + "\"; there are " + names);
}

template <class Value, class All>
std::string name_in(const All& all, Value value) {
  for (const auto& [known, name] : all) {
    if (value == known) return name;
  }
  return "?";
}

void require(bool sound, const std::string& what) {
  if (!sound) throw Error("[acer] " + what);
}

}  // namespace

shared::Policy policy_named(const std::string& name) { return named("policy", name, policies); }
std::string name_of(shared::Policy policy) { return name_in(policies, policy); }
Fault fault_named(const std::string& name) { return named("fault to train with", name, planted); }
std::string name_of(Fault fault) { return name_in(planted, fault); }

void check(const Settings& settings) {
  const auto& rules = settings.rules;
  require(settings.window > 0 && settings.replay_windows > 0, "windows need steps, and updates windows");
  require(settings.replay_windows <= 1'000'000 / settings.window,
          "an update from " + std::to_string(settings.replay_windows) + " windows of " +
              std::to_string(settings.window) + " steps is more than one of a million steps");
  require(settings.replay_ratio >= 0 && settings.replay_ratio <= 100, "a replay ratio is 0 to 100");
  require(settings.replay_capacity > 0 && settings.replay_start >= 0, "a replay has room, and starts at some step");
  for (const int64_t width : settings.hidden) require(width > 0 && width <= 65'536, "a layer is 1 to 65536 wide");
  require(settings.learning_rate > 0 && settings.learning_rate < 1e3, "a learning rate is more than 0");
  require(settings.evaluate_every >= 0 && settings.checkpoint_every >= 0, "nothing is done every less than 0 steps");
  require(settings.replay_ratio == 0 || settings.replay_start <= settings.replay_capacity,
          "replay would never start: it begins after " + std::to_string(settings.replay_start) +
              " steps and keeps only " + std::to_string(settings.replay_capacity));
  require(settings.replay_ratio == 0 || settings.replay_start < settings.steps,
          "replay would never start: it begins after " + std::to_string(settings.replay_start) +
              " steps, and there are only " + std::to_string(settings.steps) + "; see --replay-start");
  require(!settings.resume || settings.inject == Fault::None,
          "what a faulty training keeps by mistake is in no checkpoint; --inject cannot --resume");
  require(rules.discount > 0 && rules.discount <= 1, "a discount is more than 0 and at most 1");
  require(rules.truncation >= 1, "importance weights cut below 1 leave nothing on-policy as it is");
  require(rules.entropy >= 0 && rules.entropy < 1e6 && rules.critic >= 0 && rules.critic < 1e6,
          "weights of the entropy and of the critic are 0 or more");
  require(rules.largest_gradient >= 0, "a gradient's length is at least 0");
  require(rules.trust > 0, "a trust region needs a size; --no-trust-region does without");
  require(rules.deviation > 0, "a policy of amounts needs a deviation, or it would try nothing");
  require(rules.advantage_samples > 0 && rules.advantage_samples <= 1000,
          "advantages are measured against 1 to 1000 others; see --advantage-samples");
  require(settings.reward_scale > 0, "rewards that are scaled by less than 0 or by 0 teach something else");
  require(settings.averaging > 0 && settings.averaging < 1, "an average keeps more than 0 and less than 1 of itself");
}

std::string to_json(const Settings& s) {
  const nlohmann::ordered_json json{
      {"env", s.environment},
      {"workers", s.workers},
      {"steps", s.steps},
      {"policy", name_of(s.policy)},
      {"seed", s.seed},
      {"hidden", s.hidden},
      {"discount", s.rules.discount},
      {"truncation", s.rules.truncation},
      {"trust_region", s.rules.trust_region},
      {"trust", s.rules.trust},
      {"statistics", s.rules.statistics == Statistics::Probabilities ? "probabilities" : "logits"},
      {"entropy", s.rules.entropy},
      {"critic", s.rules.critic},
      {"deviation", s.rules.deviation},
      {"advantage_samples", s.rules.advantage_samples},
      {"largest_gradient", s.rules.largest_gradient},
      {"window", s.window},
      {"replay_ratio", s.replay_ratio},
      {"replay_windows", s.replay_windows},
      {"replay_capacity", s.replay_capacity},
      {"replay_start", s.replay_start},
      {"optimizer", s.optimizer == Optimizer::RMSprop ? "rmsprop" : "adam"},
      {"learning_rate", s.learning_rate},
      {"reward_scale", s.reward_scale},
      {"averaging", s.averaging},
      {"evaluate_every", s.evaluate_every},
      {"evaluation_episodes", s.evaluation_episodes},
      {"report_every", s.report_every},
      {"checkpoint_every", s.checkpoint_every},
      {"resume", s.resume},
      {"inject", name_of(s.inject)},
      {"owner", s.owner},
  };
  return json.dump(2) + "\n";
}

Random random_of(const Settings& settings, Stream stream) {
  return Random(settings.seed, static_cast<uint64_t>(stream));
}

Random random_of_worker(const Settings& settings, int worker, int life, int purpose) {
  // Lives of a worker and purposes of a life have room between those of the next one.
  const auto number = (static_cast<uint64_t>(worker) << 24) + (static_cast<uint64_t>(life) << 4);
  return Random(settings.seed, static_cast<uint64_t>(Stream::Workers) + number + static_cast<uint64_t>(purpose));
}

}  // namespace farad::acer
