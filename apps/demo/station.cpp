#include "demo/station.h"

#include <c10/core/GradMode.h>
#include <farad/error.h>
#include <time.h>

#include <chrono>
#include <exception>
#include <utility>

namespace farad::demo {
namespace {

using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

Station::Station(const PipelineOptions& options, int place) : turns_(order_of(options.schedule, options.shape, place)) {
  const int64_t blocks = options.model.blocks, stages = options.shape.stages();
  TORCH_CHECK(stages <= blocks, "[pipeline] ", blocks, " blocks are too few for ", stages, " stages");
  for (int chunk = 0; chunk < options.shape.chunks; chunk++) {
    const int64_t stage = chunk * options.shape.workers + place;
    parts_.push_back(
        std::make_shared<ModelPart>(options.model, stage * blocks / stages, (stage + 1) * blocks / stages));
  }
}

Future<at::Tensor> Station::forward(int micro_batch, int chunk, RRef<at::Tensor> input) {
  return in_turn(micro_batch, chunk, std::move(input), [](at::Tensor output) { return output; });
}

Future<at::Tensor> Station::loss(int micro_batch, RRef<at::Tensor> input, at::Tensor targets) {
  return in_turn(micro_batch, static_cast<int>(parts_.size()) - 1, std::move(input),
                 [targets = std::move(targets)](at::Tensor scores) { return surprise(scores, targets); });
}

void Station::abandon(std::string why) { turns_.fail(std::make_exception_ptr(Cancelled("[pipeline] " + why))); }

at::Tensor Station::apply(int chunk, at::Tensor input) {
  const at::NoGradGuard no_grad;
  return parts_.at(static_cast<size_t>(chunk))->forward(input);
}

std::vector<RRef<at::Tensor>> Station::parameters(int chunk) {
  std::vector<RRef<at::Tensor>> references;
  for (const auto& parameter : parts_.at(static_cast<size_t>(chunk))->parameters())
    references.push_back(RRef<at::Tensor>::local(Worker::current(), parameter));
  return references;
}

StationReport Station::report() {
  const double cpu = cpu_seconds();
  return {static_cast<double>(forward_ns_.exchange(0)) * 1e-9, static_cast<double>(backward_ns_.exchange(0)) * 1e-9,
          static_cast<double>(input_ns_.exchange(0)) * 1e-9, cpu - cpu_seconds_.exchange(cpu), turns_.most_kept()};
}

Future<at::Tensor> Station::in_turn(int micro_batch, int chunk, RRef<at::Tensor> input,
                                    std::function<at::Tensor(at::Tensor)> finish) {
  return turns_.await(micro_batch, chunk)
      .then([self = shared_from_this(), micro_batch, chunk, input = std::move(input), finish = std::move(finish)] {
        try {
          const auto asked = Clock::now();
          const auto here = input.to_here();
          self->input_ns_ += ns_since(asked);
          return self->compute(micro_batch, chunk, here, finish);
        } catch (...) {
          self->turns_.fail(std::current_exception());
          throw;
        }
      });
}

at::Tensor Station::compute(int micro_batch, int chunk, const at::Tensor& input,
                            const std::function<at::Tensor(at::Tensor)>& finish) {
  const auto start = Clock::now();
  auto& part = *parts_.at(static_cast<size_t>(chunk));
  const auto entered = part.enter(input);
  auto output = finish(part.advance(entered));
  // The gradient of the output is where the backward of this stage begins, that of its input where it ends.
  const auto backward_start = std::make_shared<Clock::time_point>();
  output.register_hook([backward_start](const at::Tensor&) { *backward_start = Clock::now(); });
  entered.register_hook([self = shared_from_this(), backward_start, micro_batch, chunk](const at::Tensor&) {
    self->backward_ns_ += ns_since(*backward_start);
    self->turns_.end({Action::Kind::Backward, micro_batch, chunk});
  });
  forward_ns_ += ns_since(start);
  turns_.end({Action::Kind::Forward, micro_batch, chunk});
  return output;
}

}  // namespace farad::demo
