#include "demo/pipeline.h"

#include <farad/autograd.h>
#include <farad/error.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace farad::demo {
namespace {

std::shared_ptr<Station> make_station(PipelineOptions options, int place) {
  return std::make_shared<Station>(options, place);
}

}  // namespace

/// One batch on its way through the pipeline. Every micro-batch has a context of its own, so that its pass meets no
/// other's calls; and a thread of its own, because contexts are per thread and a pass is waited for.
class Pipeline::Step {
 public:
  Step(Pipeline& pipeline, const Batch& batch)
      : pipeline_(pipeline),
        count_(pipeline.options_.shape.micro_batches),
        inputs_(batch.inputs.chunk(count_)),
        targets_(batch.targets.chunk(count_)),
        contexts_(static_cast<size_t>(count_)),
        losses_(static_cast<size_t>(count_)),
        forwards_(count_),
        passes_(count_) {
    try {
      for (int i = 0; i < count_; i++) threads_.emplace_back([this, i] { carry(i); });
    } catch (...) {  // There are no more threads to be had.
      fail(std::current_exception());
      const auto without = count_ - static_cast<std::ptrdiff_t>(threads_.size());
      forwards_.count_down(without);
      passes_.count_down(without);
    }
  }
  ~Step() {
    stepped_.count_down();
    for (auto& thread : threads_) thread.join();
  }

  /// When all micro-batches are through; throws what went wrong first.
  double finish(AnyOptimizer& optimizer) {
    passes_.wait();
    if (failure_) std::rethrow_exception(failure_);
    const auto start = std::chrono::steady_clock::now();
    optimizer.step(contexts_);
    pipeline_.optimizer_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return sum / count_;
  }

 private:
  void carry(int micro_batch) {
    const auto i = static_cast<size_t>(micro_batch);
    std::optional<Context> context;
    bool forward_counted = false;
    try {
      context.emplace(pipeline_.worker_);
      const auto loss = pipeline_.send_through(micro_batch, inputs_[i], targets_[i]).to_here();
      forwards_.count_down();
      forward_counted = true;
      if (pipeline_.options_.schedule == PipelineSchedule::GPipe) forwards_.wait();
      context->backward({loss / count_});
      losses_[i] = loss.item<double>();
      contexts_[i] = &*context;
    } catch (...) {
      fail(std::current_exception());
      if (!forward_counted) forwards_.count_down();
    }
    passes_.count_down();
    stepped_.wait();  // The optimizer reads the context's gradients until then.
  }

  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = std::move(error);
    }
    pipeline_.abandon();  // Others may wait for their turn behind what will never come.
  }

  Pipeline& pipeline_;
  const int count_;
  const std::vector<at::Tensor> inputs_, targets_;
  std::vector<Context*> contexts_;
  std::vector<double> losses_;
  std::latch forwards_, passes_, stepped_{1};
  std::mutex mutex_;
  std::exception_ptr failure_;  // Under the mutex until all have passed.
  std::vector<std::thread> threads_;
};

Pipeline::Pipeline(Worker& worker, const PipelineOptions& options) : worker_(worker), options_(options) {
  const auto& shape = options.shape;
  for (int place = 0; place < shape.workers; place++)
    stations_.push_back(worker.remote<make_station>(place, options, place));
  for (int chunk = 0; chunk < shape.chunks; chunk++) {
    for (const auto& station : stations_) {
      for (auto& parameter : station.rpc_sync<&Station::parameters>(chunk)) parameters_.push_back(std::move(parameter));
    }
  }
}

double Pipeline::step(const Batch& batch, AnyOptimizer& optimizer) {
  TORCH_CHECK(batch.inputs.size(0) % options_.shape.micro_batches == 0, "[pipeline] a batch of ", batch.inputs.size(0),
              " cannot be cut into ", options_.shape.micro_batches, " equal micro-batches");
  return Step(*this, batch).finish(optimizer);
}

RRef<at::Tensor> Pipeline::send_through(int micro_batch, at::Tensor inputs, at::Tensor targets) const {
  auto at = RRef<at::Tensor>::local(worker_, std::move(inputs));
  const auto& shape = options_.shape;
  for (int stage = 0; stage < shape.stages() - 1; stage++) {
    // Each stage fetches from the one before it; what passes here are references.
    at = stations_[static_cast<size_t>(stage % shape.workers)].remote<&Station::forward>(micro_batch,
                                                                                         stage / shape.workers, at);
  }
  return stations_.back().remote<&Station::loss>(micro_batch, at, std::move(targets));
}

void Pipeline::abandon() const {
  for (const auto& station : stations_) {
    try {
      station.rpc_sync<&Station::abandon>("another micro-batch of this step has failed");
    } catch (const Error&) {
      // That worker is lost, and with it all that waited there.
    }
  }
}

at::Tensor Pipeline::scores(at::Tensor characters) const {
  for (int chunk = 0; chunk < options_.shape.chunks; chunk++) {
    for (const auto& station : stations_) characters = station.rpc_sync<&Station::apply>(chunk, characters);
  }
  return characters;
}

std::vector<StationReport> Pipeline::reports() const {
  std::vector<StationReport> all;
  for (const auto& station : stations_) all.push_back(station.rpc_sync<&Station::report>());
  return all;
}

}  // namespace farad::demo
