// concat_all_gather with a gradient: every worker's triplet loss uses all workers' embeddings, and each model hears of
// it. The anchors are not computed, so that the gradient flows through the gather only.

#include <farad/farad.h>

#include <iostream>

constexpr int workers = 3;
constexpr int batch = 4;

struct Batch {
  torch::Tensor anchor, positive, negative;
};

Batch batch_of(int rank) {
  torch::manual_seed(rank);
  return {torch::randn({batch, 8}, torch::kDouble), torch::randn({batch, 5}, torch::kDouble),
          torch::randn({batch, 5}, torch::kDouble)};
}

torch::Tensor make_model() {
  torch::manual_seed(17);  // The same everywhere.
  return torch::randn({5, 8}, torch::kDouble).requires_grad_();
}

/// Each anchor against all positives and all negatives.
torch::Tensor loss_of(const torch::Tensor& anchor, const torch::Tensor& positive, const torch::Tensor& negative) {
  return torch::relu(torch::cdist(anchor, positive) - torch::cdist(anchor, negative) + 1).mean();
}

torch::Tensor in_one_process() {
  const auto model = make_model();
  std::vector<torch::Tensor> positives, negatives;
  for (int rank = 0; rank < workers; ++rank) {
    positives.push_back(batch_of(rank).positive.mm(model));
    negatives.push_back(batch_of(rank).negative.mm(model));
  }
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < workers; ++rank) {
    loss = loss + loss_of(batch_of(rank).anchor, torch::cat(positives), torch::cat(negatives));
  }
  loss.backward();
  return model.grad();
}

void run(farad::Worker& worker) {
  farad::Group group(worker);
  const auto model = make_model();
  const auto mine = batch_of(worker.rank());
  const auto positive = group.all_gather_cat(mine.positive.mm(model));
  const auto negative = group.all_gather_cat(mine.negative.mm(model));
  loss_of(mine.anchor, positive, negative).backward();
  // Each model has the gradient of what was computed with it; together they are one model's.
  const auto gradient = group.all_reduce(model.grad());
  if (worker.rank() != 0) return;
  const bool equal = torch::allclose(gradient, in_one_process(), 1e-12, 1e-12);
  std::cout << "the gradient is " << (equal ? "that of one process" : "wrong") << std::endl;
}

int main() { farad::spawn(workers, run); }
