#include "audit/copy.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "audit/making.h"
#include "audit/numbers.h"

namespace farad::audit {
namespace {

Batch concatenate_tensors(const std::vector<Batch>& batches) {
  Batch all;
  for (size_t i = 0; i < batches.front().tensors.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const auto& batch : batches) parts.push_back(batch.tensors.at(i));
    all.tensors.push_back(at::cat(parts));
  }
  for (const auto& batch : batches) all.samples += batch.samples;
  return all;
}

}  // namespace

Copy::Copy(const Training& training, const Options& options)
    : rounds_(options.rounds), learner_(make_learner(training, options)) {
  TORCH_CHECK(learner_.batch && learner_.gradients, "[audit] \"", training.name,
              "\" made a learner without batch or gradients");
  for (const auto& [name, tensor, trained, buffer] : learner_.tensors) {
    if (!trained) {
      tensors_.buffers.push_back({name, tensor});
      first_.emplace_back(tensor, tensor.detach().clone());
      continue;
    }
    TORCH_CHECK(tensor.scalar_type() == options.dtype, "[audit] \"", training.name, "\": the parameter \"", name,
                "\" is of ", tensor.dtype(), ", not of the type that Options::dtype asks for");
    tensors_.parameters.push_back({name, tensor});
    trained_.push_back(tensor);
    names_.push_back(name);
  }
  TORCH_CHECK(!trained_.empty(), "[audit] \"", training.name, "\" has no parameter that requires a gradient");
  TORCH_CHECK(learner_.average.empty() || learner_.average.size() == learner_.tensors.size(), "[audit] \"",
              training.name, "\" wants the average of ", learner_.average.size(), " tensors and has ",
              learner_.tensors.size());
  for (size_t i = 0; i < learner_.average.size(); ++i) {
    if (learner_.tensors[i].trained) average_.push_back(learner_.average[i].tensor);
  }
  if (options.inject == "wrong-graph") {
    learner_.gradients = [compute = learner_.gradients, cut = trained_.front()](const Batch& batch) {
      compute(batch);
      cut.mutable_grad() = at::Tensor();  // As if the graph had been built over another tensor.
    };
  }
}

int64_t Copy::elements() const {
  int64_t sum = 0;
  for (const auto& tensor : trained_) sum += tensor.numel();
  return sum;
}

at::Tensor Copy::values() const { return flatten(trained_, trained_); }

void Copy::load(const at::Tensor& flat) {
  unflatten(flat, trained_);
  const c10::NoGradGuard no_grad;
  for (const auto& [tensor, first] : first_) tensor.copy_(first);
}

void Copy::load_average(const at::Tensor& flat) { unflatten(flat, average_); }

Batch Copy::batch(int worker, uint64_t sequence) const {
  auto one = learner_.batch(worker, sequence);
  if (sequence != 1 || worker % 2 == 0) return one;
  return concatenate({std::move(one), learner_.batch(worker, static_cast<uint64_t>(rounds_) + 1)});
}

Batch Copy::concatenate(const std::vector<Batch>& batches) const {
  if (batches.size() == 1) return batches.front();
  return learner_.concatenate ? learner_.concatenate(batches) : concatenate_tensors(batches);
}

void Copy::clear_gradients() {
  for (const auto& tensor : trained_) tensor.mutable_grad() = at::Tensor();
}

std::vector<at::Tensor> Copy::gradients() const {
  std::vector<at::Tensor> all;
  for (const auto& tensor : trained_) all.push_back(tensor.grad());
  return all;
}

at::Tensor Copy::flat_gradient(const Batch& batch) {
  clear_gradients();
  backward(batch);
  return flatten(gradients(), trained_);
}

at::Tensor Copy::flat_reference(const Batch& batch) {
  if (!learner_.reference) return flat_gradient(batch);
  const auto computed = learner_.reference(batch);
  TORCH_CHECK(computed.size() == trained_.size(), "[audit] the reference gave ", computed.size(), " gradients for ",
              trained_.size(), " parameters");
  return flatten(computed, trained_);
}

}  // namespace farad::audit
