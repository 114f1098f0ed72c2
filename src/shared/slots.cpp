#include "shared/slots.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace farad::shared {

Slots::Slots(std::shared_ptr<Segment> segment, const Layout& layout, Holds holds) : segment_(std::move(segment)) {
  for (const auto& place : layout.places()) {
    if (place.trained || holds == Holds::Values) places_.push_back(place);
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
  for (size_t i = 0; i < tensors.size(); ++i) {
    defined(ticket, i) = tensors[i].defined();
    if (tensors[i].defined()) view(ticket, i).copy_(tensors[i]);
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
  double total = 0;
  for (const auto& ticket : tickets) total += ticket.samples;
  std::vector<double> shares;
  for (const auto& ticket : tickets) shares.push_back(total > 0 ? ticket.samples / total : 0);
  return sum(tickets, shares);
}

std::vector<at::Tensor> Slots::sum(const std::vector<Ticket>& tickets, const std::vector<double>& shares) const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sums(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    auto& sum = sums[i];
    for (size_t each = 0; each < tickets.size(); ++each) {
      if (shares[each] == 0 || !defined(tickets[each], i)) continue;
      const auto one = view(tickets[each], i);
      if (!sum.defined()) {
        // What is alone needs no copy: it stays where it lies until the update is done.
        sum = shares[each] == 1 || !one.is_floating_point() ? one : one.mul(shares[each]);
      } else if (one.is_floating_point()) {
        sum.add_(one, shares[each]);
      }
    }
  }
  return sums;
}

}  // namespace farad::shared
