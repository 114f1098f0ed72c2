// Structs travel once they name their fields; so do containers of them, and tensors inside.
// farad run -n 2 -- 07_structs

#include <farad/farad.h>

#include <iostream>

struct Transition {
  torch::Tensor state;
  int64_t action = 0;
  std::optional<double> reward;
  FARAD_FIELDS(state, action, reward)
};

struct Summary {
  std::map<int64_t, double> reward_by_action;
  int64_t without_reward = 0;
  FARAD_FIELDS(reward_by_action, without_reward)
};

Summary summarise(std::vector<Transition> episode) {
  Summary summary;
  for (const auto& step : episode) {
    if (step.reward) {
      summary.reward_by_action[step.action] += *step.reward * step.state.sum().item<double>();
    } else {
      ++summary.without_reward;
    }
  }
  return summary;
}

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    std::vector<Transition> episode;
    for (int64_t i = 0; i < 4; ++i) episode.push_back({torch::ones({2}), i % 2, 0.5});
    episode.push_back({torch::zeros({2}), 0, std::nullopt});
    const auto summary = worker.rpc_sync<summarise>("worker1", episode);
    for (const auto& [action, reward] : summary.reward_by_action)
      std::cout << "action " << action << ": " << reward << '\n';
    std::cout << "without a reward: " << summary.without_reward << '\n';
  }
  worker.close();
}
