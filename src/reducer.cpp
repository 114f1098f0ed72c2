#include "reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "autograd/end_of_backward.h"
#include "base/check.h"
#include "collectives/session.h"

namespace farad::detail {
namespace {

constexpr double most_off_scale = 16;  // Of float16's range, which is 2^40, that much can be spared.

/// Whether bytes can be copied from one to the other: most gradients are small, and a call of libtorch is not.
bool is_plain(const at::Tensor& gradient, const at::Tensor& flat) {
  return gradient.numel() > 0 && gradient.is_cpu() && flat.is_cpu() && gradient.scalar_type() == flat.scalar_type() &&
         gradient.is_contiguous() && flat.is_contiguous();
}

char* place_in(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

/// It is read as the bucket that it is the sum of, whatever hook has made it.
void check_sum(const at::Tensor& sum, const at::Tensor& flat) {
  FARAD_CHECK(sum.defined(), "[data_parallel] DataParallelOptions::hook gave an undefined tensor for a bucket");
  FARAD_CHECK(sum.sizes() == flat.sizes() && sum.scalar_type() == flat.scalar_type() && sum.layout() == flat.layout(),
              "[data_parallel] DataParallelOptions::hook gave ", sum.scalar_type(), " ", sum.sizes(),
              " for a bucket of ", flat.scalar_type(), " ", flat.sizes());
}

}  // namespace

/// Tells that the gradient of one parameter is there.
class Reducer::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(Reducer& reducer, size_t parameter) : reducer_(reducer), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    reducer_.on_gradient(parameter_);
    return outputs;
  }

 private:
  Reducer& reducer_;  // It takes the hook back before it ends.
  const size_t parameter_;
};

Reducer::Reducer(Group group, const std::vector<at::Tensor>& parameters, DataParallelOptions options)
    : group_(std::move(group)), options_(std::move(options)) {
  std::map<at::ScalarType, size_t> filling;  // by dtype: the bucket that is not full yet
  for (auto each = parameters.rbegin(); each != parameters.rend(); ++each) {
    const auto type = each->scalar_type();
    const auto [at, fresh] = filling.try_emplace(type, buckets_.size());
    if (fresh) buckets_.emplace_back().options = at::TensorOptions(type);
    const size_t index = at->second;
    auto& bucket = buckets_[index];
    bucket.parameters.push_back(parameters_.size());
    parameters_.push_back({*each, index, bucket.elements});
    bucket.elements += each->numel();
    if (static_cast<size_t>(bucket.elements) * each->element_size() >= options_.bucket_bytes) filling.erase(at);
  }
}

void Reducer::listen() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
    parameter.hook = parameter.accumulator->add_post_hook(std::make_unique<Hook>(*this, i));
  }
}

void Reducer::stop() {
  for (auto& parameter : parameters_) parameter.accumulator->del_post_hook(parameter.hook);
}

// --- A backward ---

Reducer::Round::Round(Reducer& owner) : reducer(owner.shared_from_this()), seen(owner.parameters_.size()) {
  for (const auto& bucket : owner.buckets_) missing.push_back(bucket.parameters.size());
}

Reducer::Round::~Round() {
  if (over) return;
  try {  // Here, because the engine tells nobody that a backward has failed: it drops what was queued for its end.
    reducer->give_up({base::Code::Aborted, "[data_parallel] its backward failed before all gradients were there"});
  } catch (...) {  // Then the others learn of it when this worker is lost, or by their timeout.
  }
}

void Reducer::give_up(const base::Status& why) {
  scale_ = 1;  // Some may have gone further than others. But all give up, so all begin alike.
  group_.session_->skip_section(why);
}

void Reducer::on_gradient(size_t parameter) {
  if (silent_ > 0) return;
  FARAD_CHECK(!c10::GradMode::is_enabled(),
              "[data_parallel] backward with create_graph: averaged gradients have no history; use no_sync(), and "
              "all_reduce() of the gradients");
  auto round = round_.lock();
  if (!round) {
    round = std::make_shared<Round>(*this);
    try {
      autograd::at_end_of_backward([round] { round->reducer->finish(*round, true); });
    } catch (const c10::Error&) {
      round->over = true;  // It has not begun.
      throw Error(
          "[data_parallel] gradients are averaged by plain backwards only, and this is none; in a Context use "
          "no_sync(), and all_reduce() of the gradients");
    }
    round_ = round;
    began_ = true;
  }
  if (round->seen[parameter]) {  // Again, by a backward within this one.
    const auto& again = parameters_[parameter];
    FARAD_CHECK(again.bucket >= round->sums.size(), "[data_parallel] a parameter of ", again.tensor.sizes(),
                " got another gradient after its bucket had been sent, as one does that is used in two checkpoints; "
                "use no_sync(), and all_reduce() of the gradients");
    return;
  }
  round->seen[parameter] = true;
  --round->missing[parameters_[parameter].bucket];
  // Once the last one is full there is nothing left to overlap with, so that goes out in the end, by this thread.
  while (round->sums.size() + 1 < buckets_.size() && round->missing[round->sums.size()] == 0) send_next(*round, true);
}

void Reducer::send_next(Round& round, bool with_gradients) {
  const c10::NoGradGuard no_grad;
  auto& bucket = buckets_[round.sums.size()];
  auto flat = std::exchange(bucket.flat, {});  // If this round fails, somebody may still read it.
  if (!flat.defined()) flat = at::empty({bucket.elements}, bucket.options);
  for (const size_t index : bucket.parameters) {
    const auto& parameter = parameters_[index];
    const auto& gradient = parameter.tensor.grad();
    if (!with_gradients || !gradient.defined()) {
      flat.narrow(0, parameter.begin, parameter.tensor.numel()).zero_();
      continue;
    }
    FARAD_CHECK(gradient.layout() == at::kStrided, "[data_parallel] a gradient of a parameter of ",
                parameter.tensor.sizes(), " is ", gradient.layout(), "; only dense ones can be averaged");
    if (is_plain(gradient, flat)) {
      std::memcpy(place_in(flat, parameter.begin), gradient.data_ptr(), gradient.nbytes());
    } else {
      flat.narrow(0, parameter.begin, parameter.tensor.numel()).copy_(gradient.reshape({-1}));
    }
  }
  // Divided before they are added: sums of 16 bits then reach no further than what is summed.
  if (with_gradients) flat.mul_(weight_ / scale_ / group_.size());
  round.flats.push_back(flat);
  const bool is_last = round.flats.size() == buckets_.size();
  round.sums.push_back(is_last ? sum_last(std::move(flat)) : options_.hook(group_, flat));
}

/// This thread would only wait for another that does it.
Future<at::Tensor> Reducer::sum_last(at::Tensor flat) {
  const auto* const hook = options_.hook.target<decltype(&sum_bucket)>();
  if (!hook || *hook != &sum_bucket) return options_.hook(group_, std::move(flat));
  const Promise<at::Tensor> sum;
  sum.set_value(group_.all_reduce(std::move(flat)));
  return sum.future();
}

bool Reducer::finish(Round& round, bool with_gradients) {
  round.over = true;
  try {
    return average(round, with_gradients);
  } catch (...) {
    give_up(base::status_of(std::current_exception()));
    throw;
  }
}

bool Reducer::average(Round& round, bool with_gradients) {
  const c10::NoGradGuard no_grad;
  while (round.sums.size() < buckets_.size()) send_next(round, with_gradients);
  auto told = at::zeros({1 + static_cast<int64_t>(parameters_.size())}, at::kDouble);
  auto* numbers = told.data_ptr<double>();
  if (with_gradients) {
    numbers[0] = weight_ / scale_;
    for (size_t i = 0; i < parameters_.size(); ++i) numbers[1 + i] = parameters_[i].tensor.grad().defined() ? 1 : 0;
  }
  const auto heard = group_.all_reduce(told);
  double weight = heard.data_ptr<double>()[0] / group_.size();
  if (weight != 0 && (weight < 1 / most_off_scale || weight > most_off_scale)) {
    // Then sums of 16 bits may have left their range. All see the same weight, so all form them again.
    const double by = std::scalbn(1.0, std::ilogb(weight));
    scale_ *= by;
    weight /= by;
    round.flats.clear();
    round.sums.clear();
    while (round.sums.size() < buckets_.size()) send_next(round, with_gradients);
  }
  for (size_t i = 0; i < buckets_.size(); ++i) {
    auto mean = round.sums[i].wait();
    check_sum(mean, round.flats[i]);
    if (weight != 0) {
      if (weight != 1) mean = mean.div(weight);
      take(mean, buckets_[i], heard, with_gradients);
    }
    buckets_[i].flat = std::move(round.flats[i]);
  }
  return weight != 0;
}

void Reducer::take(const at::Tensor& mean, Bucket& bucket, const at::Tensor& used, bool with_gradients) {
  const auto* is_used = used.data_ptr<double>() + 1;
  for (const size_t index : bucket.parameters) {
    auto& parameter = parameters_[index];
    auto& gradient = parameter.tensor.mutable_grad();
    if (is_used[index] == 0) {
      if (!with_gradients) gradient.reset();  // As the others have it: had they kept one, it would count as used.
      continue;
    }
    if (gradient.defined() && is_plain(gradient, mean)) {
      std::memcpy(gradient.data_ptr(), place_in(mean, parameter.begin), gradient.nbytes());
      gradient.unsafeGetTensorImpl()->bump_version();
      continue;
    }
    const auto part = mean.narrow(0, parameter.begin, parameter.tensor.numel()).view(parameter.tensor.sizes());
    if (gradient.defined()) {
      gradient.copy_(part);
    } else {
      gradient = part.clone();
    }
  }
}

void Reducer::backward(const at::Tensor& loss) {
  began_ = false;
  try {
    if (loss.requires_grad()) loss.backward();
  } catch (...) {
    if (!began_ && silent_ == 0) give_up(base::status_of(std::current_exception()));
    throw;
  }
  if (began_ || silent_ > 0) return;
  Round round(*this);
  finish(round, true);
}

bool Reducer::follow() {
  Round round(*this);
  return finish(round, false);
}

}  // namespace farad::detail
