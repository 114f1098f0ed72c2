// Contrastive learning as SimCLR does it: of each picture two views, and each view has to find the other one among the
// views of all workers. With the gradient through all_gather it is the training of one process that has all pictures;
// without it, as with an all_gather that has none, each embedding hears of one loss only instead of all.
//
// An argument, if there is one, names a file for a drawing of the losses.

#include <farad/farad.h>

#include <fstream>
#include <iostream>

#include "plot/line_plot.h"

constexpr int workers = 4;
constexpr int pictures = 8;  // of each worker and step
constexpr int side = 12;
constexpr int steps = 60;
constexpr double temperature = 0.2;
std::string drawing;

using torch::Tensor;

/// Bars and spots at places of their own; a view is one of them moved by a pixel or none, and noisy.
Tensor views_of(int rank, int step) {
  torch::manual_seed(10'000 * rank + step);
  const auto places = torch::randint(2, side - 2, {pictures, 2});
  const auto views = torch::randn({2, pictures, side, side}) * 0.2;
  for (int i = 0; i < pictures; ++i) {
    for (int view = 0; view < 2; ++view) {
      const auto moved = places[i] + torch::randint(-1, 2, {2});
      const auto row = moved[0].item<int64_t>(), column = moved[1].item<int64_t>();
      views[view][i].narrow(0, row, 1).add_(1);
      views[view][i].narrow(0, row - 1, 3).narrow(1, column - 1, 3).add_(1);
    }
  }
  return views.reshape({2 * pictures, side * side});
}

torch::nn::Sequential make_encoder() {
  torch::manual_seed(17);
  return torch::nn::Sequential(torch::nn::Linear(side * side, 48), torch::nn::ReLU(), torch::nn::Linear(48, 16));
}

Tensor embed(torch::nn::Sequential& encoder, const Tensor& views) {
  return torch::nn::functional::normalize(encoder->forward(views));
}

/// Of the views that begin at `first` among all: how badly each finds the other view of its picture.
Tensor loss_of(const Tensor& mine, const Tensor& all, int64_t first) {
  const auto own = torch::arange(2 * pictures);
  const auto other = first + (own + pictures) % (2 * pictures);
  auto likeness = mine.mm(all.t()) / temperature;
  likeness = likeness.index_put({own, first + own}, torch::tensor(-1e9));  // Nobody is compared with itself.
  return torch::nn::functional::cross_entropy(likeness, other);
}

enum class Way { WithGradient, Without };

std::vector<double> train(farad::Worker& worker, Way way) {
  farad::Group group(worker);
  auto encoder = make_encoder();
  farad::DataParallel parallel(encoder, farad::Group(worker));
  torch::optim::SGD optimizer(encoder->parameters(), 0.5);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto mine = embed(encoder, views_of(worker.rank(), step));
    const auto all = group.all_gather_cat(way == Way::WithGradient ? mine : mine.detach());
    const auto loss = loss_of(mine, all, worker.rank() * 2 * pictures);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(group.all_reduce(loss.detach(), farad::Op::Mean).item<double>());
  }
  return losses;
}

std::vector<double> train_alone() {
  auto encoder = make_encoder();
  torch::optim::SGD optimizer(encoder->parameters(), 0.5);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<Tensor> views;
    for (int rank = 0; rank < workers; ++rank) views.push_back(views_of(rank, step));
    const auto all = embed(encoder, torch::cat(views));
    Tensor loss = torch::zeros({});
    for (int rank = 0; rank < workers; ++rank) {
      const auto first = rank * 2 * pictures;
      loss = loss + loss_of(all.narrow(0, first, 2 * pictures), all, first) / workers;
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

double difference_of(const std::vector<double>& losses, const std::vector<double>& others) {
  double most = 0;
  for (int step = 0; step < steps; ++step) most = std::max(most, std::abs(losses[step] - others[step]));
  return most;
}

void run(farad::Worker& worker) {
  torch::set_num_threads(1);
  const auto with = train(worker, Way::WithGradient);
  const auto without = train(worker, Way::Without);
  if (worker.rank() != 0) return;
  const auto alone = train_alone();
  const double with_gradient = difference_of(with, alone), without_gradient = difference_of(without, alone);
  std::cout << "loss at first " << with.front() << ", at last " << with.back() << " with the gradient, "
            << without.back() << " without\n"
            << "with the gradient " << (with_gradient < 1e-3 ? "it is that of one process" : "it differs")
            << ", without " << (without_gradient < 1e-2 ? "it is the same" : "it is another training") << std::endl;
  if (drawing.empty()) return;
  std::ofstream(drawing) << farad::plot::to_svg(
      {{"one process", R"(stroke="#f5a623" stroke-width="6" stroke-opacity="0.6")", alone},
       {"gradient through all_gather", R"(stroke="#1f4e8c" stroke-width="1.5")", with},
       {"none", R"(stroke="#c0392b" stroke-width="1.5")", without}},
      "step", "loss");
}

int main(int count, char** arguments) {
  if (count > 1) drawing = arguments[1];
  farad::spawn(workers, run);
}
