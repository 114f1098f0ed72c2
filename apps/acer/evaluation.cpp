#include "acer/evaluation.h"

#include <farad/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "acer/actor_learner.h"
#include "acer/environments/registry.h"

namespace farad::acer {
namespace {

Evaluation::Returns play(PlainNetwork<float>& network, Environment& environment, int episodes, bool greedy,
                         Random random) {
  Evaluation::Returns returns{0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::vector<float> seen(static_cast<size_t>(environment.spec().observation_size));
  for (int i = 0; i < episodes; ++i) {
    environment.reset(random, seen);
    double sum = 0;
    for (Outcome outcome; !outcome.over(); sum += outcome.reward) {
      network.forward(seen);
      const auto policy = network.policy();
      const int64_t best = std::max_element(policy.begin(), policy.end()) - policy.begin();
      outcome = environment.step({greedy ? best : choose(policy, random.uniform())}, random, seen);
    }
    returns.mean += sum / episodes;
    returns.least = std::min(returns.least, sum);
    returns.most = std::max(returns.most, sum);
  }
  return returns;
}

}  // namespace

Evaluation evaluate(PlainNetwork<float>& network, const Settings& settings) {
  const auto environment = make_environment(settings.environment);
  const auto random = random_of(settings, Stream::Evaluation);
  Evaluation evaluation;
  evaluation.greedy = play(network, *environment, settings.evaluation_episodes, true, random);
  evaluation.sampled = play(network, *environment, settings.evaluation_episodes, false, random);
  return evaluation;
}

void serve_evaluations(const Settings& settings, shared::Model& model, int requests, int results) {
  const auto spec = make_environment(settings.environment)->spec();
  const auto shape = settings.shape(spec.observation_size, spec.actions);
  Network network(shape, Random(0));
  PlainNetwork<float> plain(shape);
  int64_t steps = 0;
  ssize_t count;
  while ((count = ::read(requests, &steps, sizeof steps)) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof steps) throw Error("[acer] evaluation: half a request");
    const uint64_t version = model.pull(*network);
    plain.copy(*network);
    auto evaluation = evaluate(plain, settings);
    evaluation.steps = steps;
    evaluation.version = version;
    // Shorter than what a pipe takes at once, so it is written whole or not at all.
    if (::write(results, &evaluation, sizeof evaluation) < 0)
      throw Error(std::string("[acer] evaluation: nobody takes the result: ") + std::strerror(errno));
  }
}

}  // namespace farad::acer
