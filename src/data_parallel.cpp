#include <farad/data_parallel.h>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "reducer.h"

namespace farad {
namespace {

using at::Tensor;

Future<Tensor> sum_as(at::ScalarType type, Group& group, const Tensor& bucket) {
  const auto own = bucket.scalar_type();
  return group.all_reduce_async(bucket.to(type)).then([own](const Tensor& sum) { return sum.to(own); });
}

/// One line for each parameter and buffer: what has to be alike.
std::vector<std::string> lines_of(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* kind, const auto& item) {
    std::ostringstream line;
    line << kind << " \"" << item.key() << "\" of " << item.value().scalar_type() << " " << item.value().sizes()
         << (item.value().requires_grad() ? "" : ", frozen");
    lines.push_back(line.str());
  };
  for (const auto& item : module.named_parameters()) add("parameter", item);
  for (const auto& item : module.named_buffers()) add("buffer", item);
  return lines;
}

Tensor as_bytes(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::vector<std::string> as_lines(const Tensor& bytes) {
  std::istringstream text(std::string(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel())));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Every member sees all of them, so that all throw the same.
void check_alike(const torch::nn::Module& module, Group& group) {
  const auto all = group.all_gather(as_bytes(lines_of(module)));
  const auto first = as_lines(all[0]);
  for (size_t member = 1; member < all.size(); ++member) {
    const auto lines = as_lines(all[member]);
    for (size_t i = 0; i < std::max(first.size(), lines.size()); ++i) {
      const std::string nothing = "nothing more";
      const auto& there = i < first.size() ? first[i] : nothing;
      const auto& here = i < lines.size() ? lines[i] : nothing;
      FARAD_CHECK(there == here, "[data_parallel] modules differ: member 0 has ", there, ", and member ", member,
                  " has ", here);
    }
  }
}

void broadcast_all(Group& group, const std::vector<Tensor>& tensors) {
  const c10::NoGradGuard no_grad;
  std::vector<Future<Tensor>> coming;
  for (const auto& tensor : tensors) coming.push_back(group.broadcast_async(tensor, 0));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto came = coming[i].wait();
    if (group.rank() != 0) Tensor(tensors[i]).copy_(came);
  }
}

/// The ones that learn; once, if a module has one under two names.
std::vector<Tensor> learning(const torch::nn::Module& module) {
  std::vector<Tensor> tensors;
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& parameter = item.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    FARAD_CHECK(at::isFloatingType(parameter.scalar_type()), "[data_parallel] parameter \"", item.key(), "\" is of ",
                parameter.scalar_type(), "; only real ones can be averaged");
    tensors.push_back(parameter);
  }
  return tensors;
}

}  // namespace

Future<Tensor> sum_bucket(Group& group, Tensor bucket) { return group.all_reduce_async(std::move(bucket)); }
Future<Tensor> sum_bucket_as_half(Group& group, Tensor bucket) { return sum_as(at::kHalf, group, bucket); }
Future<Tensor> sum_bucket_as_bfloat16(Group& group, Tensor bucket) { return sum_as(at::kBFloat16, group, bucket); }

DataParallel::DataParallel(const torch::nn::Module& module, Group group, DataParallelOptions options, Anything)
    : buffers_(module.buffers()) {
  FARAD_CHECK(options.hook, "[data_parallel] DataParallelOptions::hook is empty; leave it as it is to sum as it is");
  check_alike(module, group);
  const auto parameters = learning(module);  // Then what cannot be averaged is refused everywhere.
  broadcast_all(group, module.parameters());
  broadcast_all(group, buffers_);
  reducer_ = std::make_shared<detail::Reducer>(std::move(group), parameters, std::move(options));
  reducer_->listen();
}

DataParallel::DataParallel(DataParallel&&) noexcept = default;

DataParallel& DataParallel::operator=(DataParallel&& other) noexcept {
  if (reducer_) reducer_->stop();
  reducer_ = std::move(other.reducer_);
  buffers_ = std::move(other.buffers_);
  return *this;
}

DataParallel::~DataParallel() {
  if (reducer_) reducer_->stop();
}

void DataParallel::set_weight(double weight) {
  FARAD_CHECK(weight > 0 && std::isfinite(weight), "[data_parallel] a weight of ", weight,
              "; it has to be a positive number");
  reducer_->set_weight(weight);
}

DataParallel::NoSync::NoSync(std::shared_ptr<detail::Reducer> reducer) : reducer_(std::move(reducer)) {
  reducer_->be_silent();
}
DataParallel::NoSync::~NoSync() { reducer_->be_heard(); }

void DataParallel::backward(const Tensor& loss) { reducer_->backward(loss); }

void DataParallel::join(const std::function<void()>& step) {
  while (reducer_->follow()) step();
}

void DataParallel::broadcast_buffers() { broadcast_all(reducer_->group(), buffers_); }

}  // namespace farad
