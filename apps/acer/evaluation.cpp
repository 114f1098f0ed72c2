#include "acer/evaluation.h"

#include <farad/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "acer/best.h"
#include "acer/environments/registry.h"

namespace farad::acer {
namespace {

Evaluation::Returns play(Agent& agent, Environment& environment, int episodes, bool greedy, Random random) {
  Evaluation::Returns returns{0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::vector<float> seen(static_cast<size_t>(environment.spec().observation_size));
  for (int i = 0; i < episodes; ++i) {
    environment.reset(random, seen);
    double sum = 0;
    for (Outcome outcome; !outcome.over(); sum += outcome.reward) {
      outcome = environment.step(greedy ? agent.act_greedily(seen) : agent.act(seen, random).done, random, seen);
    }
    returns.mean += sum / episodes;
    returns.least = std::min(returns.least, sum);
    returns.most = std::max(returns.most, sum);
  }
  return returns;
}

}  // namespace

Evaluation evaluate(Agent& agent, const Settings& settings) {
  const auto environment = make_environment(settings.environment);
  environment->observe_in_units();
  const auto random = random_of(settings, Stream::Evaluation);
  Evaluation evaluation;
  evaluation.greedy = play(agent, *environment, settings.evaluation_episodes, true, random);
  evaluation.sampled = play(agent, *environment, settings.evaluation_episodes, false, random);
  return evaluation;
}

void serve_evaluations(const Settings& settings, shared::Model& model, int requests, int results) {
  const auto agent = make_agent(settings, make_environment(settings.environment)->spec());
  int64_t steps = 0;
  ssize_t count;
  while ((count = ::read(requests, &steps, sizeof steps)) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof steps) throw Error("[acer] evaluation: half a request");
    const uint64_t version = model.pull(agent->network());
    agent->follow_network();
    auto evaluation = evaluate(*agent, settings);
    evaluation.steps = steps;
    evaluation.version = version;
    BestPolicy::write(agent->network(), settings.out);
    // Shorter than what a pipe takes at once, so it is written whole or not at all.
    if (::write(results, &evaluation, sizeof evaluation) < 0)
      throw Error(std::string("[acer] evaluation: nobody takes the result: ") + std::strerror(errno));
  }
}

}  // namespace farad::acer
