#pragma once

#include <farad/farad.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

/// Who clicks on what, and the model that is to learn it: a bag of items becomes the sum of their embeddings, and a
/// dense tower makes a probability of that.
namespace recommender {

using torch::Tensor;
using Table = torch::nn::EmbeddingBag;

constexpr int64_t items = 1000, width = 16, bags = 64, bag_size = 8;

/// Bags of items, one after the other, and whether there was a click: if most of a bag's items are liked.
struct Clicks {
  std::vector<int64_t> items;
  Tensor happened;
};

inline Clicks clicks(int step) {
  std::mt19937_64 random(2024 + step);
  Clicks made;
  std::vector<float> happened;
  for (int64_t bag = 0; bag < bags; ++bag) {
    int liked = 0;
    for (int64_t i = 0; i < bag_size; ++i) {
      made.items.push_back(static_cast<int64_t>(random() % items));
      liked += made.items.back() % 3 == 0 ? 2 : -1;
    }
    happened.push_back(liked > 0 ? 1.f : 0.f);
  }
  made.happened = torch::tensor(happened).view({bags, 1});
  return made;
}

/// Of the items first, first + stride, ...; where they live makes no difference to what they are.
inline Table make_table(int64_t first, int64_t stride) {
  const auto numbers = torch::arange(first, items, stride).view({-1, 1}) * width + torch::arange(width);
  return Table::from_pretrained(
      (numbers * 0.37).sin() * 0.1,
      torch::nn::EmbeddingBagFromPretrainedOptions().freeze(false).mode(torch::kSum).sparse(true));
}

inline torch::nn::Sequential make_tower() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(width, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
}

inline Tensor look_up(Table& table, Tensor rows, Tensor offsets) { return table(rows, offsets); }
inline Tensor weight_of(Table& table) { return table->weight.detach(); }

/// The table in shards: item i is row i / n of shard i % n. The tower is here.
class Sharded {
 public:
  Sharded(farad::Worker& worker, const std::vector<int>& owners) : worker_(worker) {
    const auto n = static_cast<int64_t>(owners.size());
    for (const int owner : owners) {
      shards_.push_back(worker.remote<make_table>(owner, static_cast<int64_t>(shards_.size()), n));
    }
  }

  /// All shards are asked at once; what they give for a bag adds up.
  Tensor loss(const Clicks& made) {
    std::vector<farad::Future<Tensor>> parts;
    const auto n = static_cast<int64_t>(shards_.size());
    for (int64_t shard = 0; shard < n; ++shard) {
      std::vector<int64_t> rows, offsets;
      for (size_t i = 0; i < made.items.size(); ++i) {
        if (i % bag_size == 0) offsets.push_back(static_cast<int64_t>(rows.size()));
        if (made.items[i] % n == shard) rows.push_back(made.items[i] / n);
      }
      parts.push_back(shards_[shard].rpc_async<look_up>(torch::tensor(rows), torch::tensor(offsets)));
    }
    auto sum = parts[0].wait();
    for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i].wait();
    return torch::binary_cross_entropy_with_logits(tower_->forward(sum), made.happened);
  }

  std::vector<farad::RRef<Tensor>> parameters() const {
    std::vector<farad::RRef<Tensor>> all;
    for (const auto& shard : shards_) {
      for (const auto& parameter : farad::parameters(shard)) all.push_back(parameter);
    }
    for (const auto& parameter : tower_->parameters()) all.push_back(farad::RRef<Tensor>::local(worker_, parameter));
    return all;
  }
  /// As one process has them: the rows of all shards in turn, then the tower.
  std::vector<Tensor> values() const {
    auto table = torch::empty({items, width});
    const auto n = static_cast<int64_t>(shards_.size());
    for (int64_t shard = 0; shard < n; ++shard) {
      table.slice(0, shard, items, n).copy_(shards_[shard].rpc_sync<weight_of>());
    }
    std::vector<Tensor> all{table};
    for (const auto& parameter : tower_->parameters()) all.push_back(parameter.detach());
    return all;
  }

 private:
  farad::Worker& worker_;
  std::vector<farad::RRef<Table>> shards_;
  torch::nn::Sequential tower_ = make_tower();
};

/// The same without farad, and what became of it.
inline std::pair<std::vector<double>, std::vector<Tensor>> train_in_one_process(int steps, double lr) {
  auto table = make_table(0, 1);
  auto tower = make_tower();
  auto all = table->parameters();
  for (const auto& parameter : tower->parameters()) all.push_back(parameter);
  torch::optim::Adagrad optimizer(all, lr);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto made = clicks(step);
    optimizer.zero_grad();
    const auto loss = torch::binary_cross_entropy_with_logits(
        tower->forward(table(torch::tensor(made.items).view({bags, bag_size}))), made.happened);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return {losses, all};
}

}  // namespace recommender
