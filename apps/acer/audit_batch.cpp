#include "acer/audit_batch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

namespace farad::acer {

audit::Batch to_tensors(const Batch& batch, bool on_policy) {
  const int64_t steps = batch.steps();
  std::vector<int64_t> windows;
  for (const auto& window : batch.windows())
    windows.insert(windows.end(), {window.length, window.ending == Ending::Terminated, on_policy});
  std::vector<double> drawn_by, taken;
  for (int64_t i = 0; i < steps; ++i) {
    drawn_by.insert(drawn_by.end(), batch.behaviour(i).begin(), batch.behaviour(i).end());
    taken.insert(taken.end(), batch.taken_amounts(i).begin(), batch.taken_amounts(i).end());
  }
  const auto rows = [](const auto& values, int64_t count) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return at::tensor(at::ArrayRef<Value>(values)).view({count, -1});
  };
  const auto count = static_cast<int64_t>(batch.windows().size());
  audit::Batch tensors{{rows(batch.observations(), steps), rows(batch.taken(), steps), rows(batch.rewards(), steps),
                        rows(drawn_by, steps), rows(windows, count), rows(batch.afters(), count)},
                       steps};
  if (batch.amounts() > 0) {
    tensors.tensors.push_back(rows(taken, steps));
    tensors.tensors.push_back(rows(batch.noise(), steps));
  }
  return tensors;
}

Batch from_tensors(const audit::Batch& tensors) {
  const auto& all = tensors.tensors;
  const bool of_amounts = all.size() > BatchPart::amounts;
  const int64_t width = all[BatchPart::behaviours].size(1);
  Batch batch(all[BatchPart::observations].size(1), of_amounts ? 0 : width, of_amounts ? width : 0);
  const auto row_in = [&]<class Value>(size_t part, int64_t row, Value) {
    const int64_t size = all[part].size(1);
    return std::span<const Value>(all[part].data_ptr<Value>() + row * size, static_cast<size_t>(size));
  };
  int64_t row = 0;
  for (int64_t w = 0; w < all[BatchPart::windows].size(0); ++w) {
    const auto window = row_in(BatchPart::windows, w, int64_t());
    for (const int64_t next = row + window[WindowColumn::length]; row < next; ++row) {
      Action action{row_in(BatchPart::choices, row, int64_t())[0]};
      if (of_amounts) action.amounts = row_in(BatchPart::amounts, row, double());
      const auto drawn_by = row_in(BatchPart::behaviours, row, double());
      batch.add_step(row_in(BatchPart::observations, row, float()), action,
                     row_in(BatchPart::rewards, row, double())[0],
                     std::vector<float>(drawn_by.begin(), drawn_by.end()));
    }
    batch.end_window(window[WindowColumn::terminated] ? Ending::Terminated : Ending::Cut,
                     row_in(BatchPart::afters, w, float()));
  }
  if (of_amounts) {
    const auto* values = all[BatchPart::noise].data_ptr<double>();
    batch.set_noise({values, values + all[BatchPart::noise].numel()});
  }
  return batch;
}

audit::Batch joined(const std::vector<audit::Batch>& batches) {
  audit::Batch all;
  for (const auto& batch : batches) all.samples += batch.samples;
  for (size_t part = 0; part < batches.front().tensors.size(); ++part) {
    std::vector<at::Tensor> tensors;
    for (const auto& batch : batches) tensors.push_back(batch.tensors[part]);
    all.tensors.push_back(at::cat(tensors));
  }
  return all;
}

}  // namespace farad::acer
