// Why a triplet loss with a gathered batch can be "twice as fast": where the gather hands no gradient back, positives
// and negatives are not differentiated at all. What each way computes, and what of a step's time is backward. Times are
// those that the processor works for one worker, so that what else the machine does is not counted.

#include <farad/farad.h>

#include <cstdio>
#include <ctime>

constexpr int workers = 2;
constexpr int batch = 64;
constexpr int steps = 12;

using torch::Tensor;

enum class Gather { None, WithoutGradient, WithGradient };
struct Way {
  bool anchor_from_model;
  Gather gather;
  const char* name;
};
constexpr Way ways[] = {
    {true, Gather::None, "anchor from the model, own batch only   "},
    {true, Gather::WithoutGradient, "anchor from the model, no gradient      "},
    {true, Gather::WithGradient, "anchor from the model, with gradient    "},
    {false, Gather::WithoutGradient, "anchor computed before, no gradient     "},
    {false, Gather::WithGradient, "anchor computed before, with gradient   "},
};

torch::nn::Sequential make_model() {
  torch::manual_seed(17);
  auto model = torch::nn::Sequential(torch::nn::Linear(256, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                                     torch::nn::ReLU(), torch::nn::Linear(512, 64));
  model->to(torch::kDouble);
  return model;
}

/// Three pictures of each thing: anchor, positive, negative.
Tensor inputs_of(int rank, int which) {
  torch::manual_seed(10 * rank + which);
  return torch::randn({batch, 256}, torch::kDouble);
}
Tensor anchor_of(int rank) {
  torch::manual_seed(100 + rank);
  return torch::randn({batch, 64}, torch::kDouble);
}

Tensor loss_of(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  return torch::relu(torch::cdist(anchor, positive) - torch::cdist(anchor, negative) + 1).mean();
}

/// concat_all_gather: of all workers, with or without the way back.
Tensor gathered(farad::Group& group, const Tensor& mine, Gather how) {
  if (how == Gather::None) return mine;
  return group.all_gather_cat(how == Gather::WithGradient ? mine : mine.detach());
}

Tensor alone(const Way& way) {
  auto model = make_model();
  std::vector<Tensor> positives, negatives;
  for (int rank = 0; rank < workers; ++rank) {
    positives.push_back(model->forward(inputs_of(rank, 1)));
    negatives.push_back(model->forward(inputs_of(rank, 2)));
  }
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < workers; ++rank) {
    const auto anchor = way.anchor_from_model ? model->forward(inputs_of(rank, 0)) : anchor_of(rank);
    loss = loss + loss_of(anchor, torch::cat(positives), torch::cat(negatives)) / workers;
  }
  loss.backward();
  return model->parameters()[0].grad();
}

double milliseconds(std::clock_t ticks) { return 1e3 * static_cast<double>(ticks) / CLOCKS_PER_SEC; }

void run(farad::Worker& worker) {
  torch::set_num_threads(1);
  for (const auto& way : ways) {
    auto model = make_model();
    farad::DataParallel parallel(model, farad::Group(worker));
    farad::Group group(worker);
    double forward = 1e9, backward = 1e9;  // in ms; the best of all steps
    bool differentiable = true;
    for (int step = 0; step < steps && differentiable; ++step) {
      model->zero_grad();
      const auto begin = std::clock();
      const auto positive = gathered(group, model->forward(inputs_of(worker.rank(), 1)), way.gather);
      const auto negative = gathered(group, model->forward(inputs_of(worker.rank(), 2)), way.gather);
      const auto anchor =
          way.anchor_from_model ? model->forward(inputs_of(worker.rank(), 0)) : anchor_of(worker.rank());
      const auto loss = loss_of(anchor, positive, negative);
      const auto middle = std::clock();
      differentiable = loss.requires_grad();
      if (differentiable) loss.backward();
      const auto end = std::clock();
      forward = std::min(forward, milliseconds(middle - begin));
      backward = std::min(backward, milliseconds(end - middle));
    }
    if (worker.rank() != 0) continue;
    if (!differentiable) {
      std::printf("%s  nothing to differentiate: backward would throw\n", way.name);
      continue;
    }
    const bool right = torch::allclose(model->parameters()[0].grad(), alone(way), 1e-9, 1e-12);
    std::printf("%s  forward %5.2f ms, backward %5.2f ms, %s\n", way.name, forward, backward,
                right ? "the gradient of one process" : "another gradient");
  }
}

int main() { farad::spawn(workers, run); }
