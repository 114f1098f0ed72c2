#include "acer/agent.h"

#include <algorithm>

#include "acer/duelling_gradient.h"
#include "acer/gradient.h"
#include "acer/plain_network.h"

namespace farad::acer {
namespace {

class ChoosingAgent final : public Agent {
 public:
  ChoosingAgent(const NetworkShape& shape, const Rules& rules)
      : network_(shape, Random(0)), average_(shape, Random(0)), actor_(shape), gradient_(rules) {}

  Module& network() override { return *network_; }
  Module& average() override { return *average_; }
  void follow_network() override { actor_.copy(*network_); }

  std::span<const float> behaviour(std::span<const float> observation) override {
    actor_.forward(observation);
    return actor_.policy();
  }
  Decision draw(std::span<const float> behaviour, Random& random) override {
    const Action action{choose(behaviour, random.uniform())};
    return {action, action, behaviour};
  }

  Action act_greedily(std::span<const float> observation) override {
    const auto policy = behaviour(observation);
    return {std::max_element(policy.begin(), policy.end()) - policy.begin()};
  }

  int64_t actions_drawn() const override { return 0; }
  Findings learn(const Batch& batch) override { return gradient_.compute(*network_, *average_, batch); }

 private:
  Network network_, average_;
  PlainNetwork<float> actor_;
  Gradient gradient_;
};

class DuellingAgent final : public Agent {
 public:
  DuellingAgent(const NetworkShape& shape, const Rules& rules, double largest_amount)
      : rules_(rules),
        largest_amount_(largest_amount),
        network_(shape, Random(0)),
        average_(shape, Random(0)),
        actor_(shape),
        gradient_(rules),
        drawn_(static_cast<size_t>(shape.amounts)),
        done_(drawn_.size()) {}

  Module& network() override { return *network_; }
  Module& average() override { return *average_; }
  void follow_network() override { actor_.copy(*network_); }

  std::span<const float> behaviour(std::span<const float> observation) override {
    actor_.forward(observation);
    return actor_.mean();
  }
  Decision draw(std::span<const float> behaviour, Random& random) override {
    for (size_t i = 0; i < drawn_.size(); ++i)
      drawn_[i] = static_cast<double>(behaviour[i]) + rules_.deviation * random.normal();
    return {done(), {0, drawn_}, behaviour};
  }

  Action act_greedily(std::span<const float> observation) override {
    const auto mean = behaviour(observation);
    std::copy(mean.begin(), mean.end(), drawn_.begin());
    return done();
  }

  int64_t actions_drawn() const override { return DuellingGradient::actions_drawn(rules_); }
  Findings learn(const Batch& batch) override { return gradient_.compute(*network_, *average_, batch); }

 private:
  Action done() {
    std::transform(drawn_.begin(), drawn_.end(), done_.begin(), [&](double x) { return largest_amount_ * x; });
    return {0, done_};
  }

  const Rules rules_;
  const double largest_amount_;
  DuellingNetwork network_, average_;
  PlainDuellingNetwork<float> actor_;
  DuellingGradient gradient_;
  std::vector<double> drawn_, done_;
};

}  // namespace

std::unique_ptr<Agent> make_agent(const Settings& settings, const Spec& spec) {
  const auto shape = settings.shape(spec);
  if (spec.amounts == 0) return std::make_unique<ChoosingAgent>(shape, settings.rules);
  return std::make_unique<DuellingAgent>(shape, settings.rules, spec.amount_limit);
}

std::shared_ptr<Module> make_network(const NetworkShape& shape, Random random) {
  if (shape.amounts == 0) return std::make_shared<NetworkImpl>(shape, random);
  return std::make_shared<DuellingNetworkImpl>(shape, random);
}

int64_t choose(std::span<const float> probabilities, double at) {
  const auto last = static_cast<int64_t>(probabilities.size()) - 1;
  int64_t chosen = 0;
  while (chosen < last && (at -= static_cast<double>(probabilities[static_cast<size_t>(chosen)])) >= 0) ++chosen;
  return chosen;
}

}  // namespace farad::acer
