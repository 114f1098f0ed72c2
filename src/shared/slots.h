#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "shared/layout.h"
#include "shared/segment.h"

namespace farad::shared {

/// The room in a segment where workers leave gradients, or their copies of the values, for whoever brings them
/// together. Each seat has its own, so one that is killed while it fills a slot spoils nobody else's.
class Slots {
 public:
  enum class Holds { Gradients, Values };  ///< of the trained ones, and then the buffers; the values of all
  Slots(std::shared_ptr<Segment> segment, const Layout& layout, Holds holds);

  /// Copies these there; undefined ones, and those that are missing at the end, are noted as such. By whoever sits
  /// there, into a free one.
  void fill(const Ticket& ticket, const std::vector<at::Tensor>& tensors) const;
  /// What lies in one that is ready.
  Ticket ticket(uint32_t seat, uint32_t number) const;
  void free(const Ticket& ticket) const;
  Slot& slot(uint32_t seat, uint32_t number) const { return segment_->header().slots[seat][number]; }

  /// Of the gradients: the sum of samples * tensor over the sum of samples, in the order of the tickets, so that it is
  /// the same to the bit each time. Who has no gradient of a tensor counts as having zeros, who has no samples not at
  /// all; it is undefined where nobody has one, or the samples are none.
  std::vector<at::Tensor> mean(const std::vector<Ticket>& tickets) const;
  /// Of the buffers likewise, but who brings none does not count: to have none is not to have zeros. Of integers, the
  /// first.
  std::vector<at::Tensor> mean_of_buffers(const std::vector<Ticket>& tickets) const;
  /// Of all, by other shares than those of the samples.
  std::vector<at::Tensor> sum(const std::vector<Ticket>& tickets, const std::vector<double>& shares) const;

 private:
  at::Tensor sum(const std::vector<Ticket>& tickets, const std::vector<double>& shares, size_t index) const;
  at::Tensor view(const Ticket& ticket, size_t index) const;
  bool& defined(const Ticket& ticket, size_t index) const;

  const std::shared_ptr<Segment> segment_;
  std::vector<Layout::Place> places_;  // of what lies in each
  size_t gradients_ = 0;               // so many of them, the first ones
};

}  // namespace farad::shared
