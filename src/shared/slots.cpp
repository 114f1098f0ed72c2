#include "shared/slots.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace farad::shared {
namespace {

/// What each has of the samples of all.
std::vector<double> shares_of(const std::vector<double>& samples) {
  double total = 0;
  for (const double some : samples) total += some;
  std::vector<double> shares;
  for (const double some : samples) shares.push_back(total > 0 ? some / total : 0);
  return shares;
}

}  // namespace

Slots::Slots(std::shared_ptr<Segment> segment, const Layout& layout, Holds holds) : segment_(std::move(segment)) {
  const auto& all = layout.places();
  if (holds == Holds::Values) {
    places_ = all;
    return;
  }
  for (const auto& place : all) {
    if (place.trained) places_.push_back(place);
  }
  gradients_ = places_.size();
  for (const auto& place : all) {
    if (place.buffer) places_.push_back(place);
  }
}

at::Tensor Slots::view(const Ticket& ticket, size_t index) const {
  const auto& place = places_[index];
  char* data = segment_->slot(ticket.seat, ticket.number) + place.slot;
  return at::from_blob(data, place.sizes, [segment = segment_](void*) {}, at::TensorOptions(place.type));
}

bool& Slots::defined(const Ticket& ticket, size_t index) const {
  return reinterpret_cast<bool*>(segment_->slot(ticket.seat, ticket.number))[index];
}

void Slots::fill(const Ticket& ticket, const std::vector<at::Tensor>& tensors) const {
  const c10::NoGradGuard no_grad;
  auto& slot = this->slot(ticket.seat, ticket.number);
  slot.state.store(SlotState::Filling);
  for (size_t i = 0; i < places_.size(); ++i) {
    defined(ticket, i) = i < tensors.size() && tensors[i].defined();
    if (defined(ticket, i)) view(ticket, i).copy_(tensors[i]);
  }
  slot.sequence.store(ticket.sequence);
  slot.version_read.store(ticket.version_read);
  slot.updates.store(ticket.updates);
  slot.samples.store(ticket.samples);
  slot.seen.store(ticket.seen);
  slot.state.store(SlotState::Ready, std::memory_order_release);
}

Ticket Slots::ticket(uint32_t seat, uint32_t number) const {
  const auto& slot = this->slot(seat, number);
  return {seat,
          number,
          slot.sequence.load(),
          slot.version_read.load(),
          slot.updates.load(),
          slot.samples.load(),
          slot.seen.load()};
}

void Slots::free(const Ticket& ticket) const {
  slot(ticket.seat, ticket.number).state.store(SlotState::Free, std::memory_order_release);
}

std::vector<at::Tensor> Slots::mean(const std::vector<Ticket>& tickets) const {
  std::vector<double> samples;
  for (const auto& ticket : tickets) samples.push_back(ticket.samples);
  const auto shares = shares_of(samples);
  std::vector<at::Tensor> means;
  for (size_t i = 0; i < gradients_; ++i) means.push_back(sum(tickets, shares, i));
  return means;
}

std::vector<at::Tensor> Slots::mean_of_buffers(const std::vector<Ticket>& tickets) const {
  std::vector<at::Tensor> means;
  for (size_t i = gradients_; i < places_.size(); ++i) {
    std::vector<double> samples;
    for (const auto& ticket : tickets) samples.push_back(defined(ticket, i) ? ticket.samples : 0);
    means.push_back(sum(tickets, shares_of(samples), i));
  }
  return means;
}

std::vector<at::Tensor> Slots::sum(const std::vector<Ticket>& tickets, const std::vector<double>& shares) const {
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < places_.size(); ++i) sums.push_back(sum(tickets, shares, i));
  return sums;
}

at::Tensor Slots::sum(const std::vector<Ticket>& tickets, const std::vector<double>& shares, size_t index) const {
  const c10::NoGradGuard no_grad;
  at::Tensor sum;
  for (size_t each = 0; each < tickets.size(); ++each) {
    if (shares[each] == 0 || !defined(tickets[each], index)) continue;
    const auto one = view(tickets[each], index);
    if (!sum.defined()) {
      // What is alone needs no copy: it stays where it lies until the update is done.
      sum = shares[each] == 1 || !one.is_floating_point() ? one : one.mul(shares[each]);
    } else if (one.is_floating_point()) {
      sum.add_(one, shares[each]);
    }
  }
  return sum;
}

}  // namespace farad::shared
