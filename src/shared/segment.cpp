#include "shared/segment.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <string>
#include <utility>

#include "net/machine.h"

namespace farad::shared {
namespace {

constexpr uint64_t our_magic = 0x6c65646f6d726166;  // "farmodel"
constexpr uint64_t our_format = 7;
constexpr size_t page = 4096;

size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

}  // namespace

base::Status Segment::create(const std::string& name, const Layout& layout, Use use, std::shared_ptr<Segment>& out) {
  const auto& description = layout.description();
  const size_t kept = use.keeps ? layout.bytes() : 0;
  const size_t without_slots = pages(sizeof(Header)) + pages(description.size()) + pages(layout.bytes()) + pages(kept);
  const size_t slots = use.slots_per_seat * most_workers * pages(layout.slot_bytes());
  shm::Memory memory;
  auto status = shm::Memory::create("farad-model-" + name, without_slots + slots, memory);
  if (!status.ok()) return status;
  // Now, because later it would end a process in the middle of an update.
  if (status = memory.reserve(0, without_slots); !status.ok()) return status;
  auto segment = std::shared_ptr<Segment>(new Segment(std::move(memory)));
  auto& header = segment->header();
  header.format = our_format;
  header.policy = use.policy;
  header.slot_bytes = layout.slot_bytes();
  header.slots_per_seat = use.slots_per_seat;
  header.members = use.members;
  header.identity = net::new_birth();
  header.description_bytes = description.size();
  header.values_bytes = layout.bytes();
  header.kept_bytes = kept;
  header.lock.prepare();
  segment->find_parts();
  std::memcpy(segment->at(pages(sizeof(Header))), description.data(), description.size());
  header.magic.store(our_magic, std::memory_order_release);
  out = std::move(segment);
  return {};
}

base::Status Segment::adopt(base::Fd fd, size_t size, std::shared_ptr<Segment>& out) {
  shm::Memory memory;
  if (size < pages(sizeof(Header))) return {base::Code::Protocol, "[shared] this is no model: it is too small"};
  if (auto status = shm::Memory::adopt(std::move(fd), size, memory); !status.ok()) return status;
  auto segment = std::shared_ptr<Segment>(new Segment(std::move(memory)));
  const auto& header = segment->header();
  if (header.magic.load(std::memory_order_acquire) != our_magic) {
    return {base::Code::Protocol, "[shared] what is offered under that name is no model"};
  }
  if (header.format != our_format) {
    return {base::Code::Protocol, "[shared] the model is of format " + std::to_string(header.format) +
                                      ", made by another version of farad; this one has format " +
                                      std::to_string(our_format)};
  }
  const size_t described = header.description_bytes, room = size - pages(sizeof(Header));
  if (described > room || header.values_bytes > room || header.slot_bytes > room ||
      header.slots_per_seat > most_slots || header.kept_bytes != header.values_bytes ||
      pages(described) + 2 * pages(header.values_bytes) +
              header.slots_per_seat * most_workers * pages(header.slot_bytes) !=
          room) {
    return {base::Code::Protocol, "[shared] a model whose parts do not fit into it"};
  }
  segment->find_parts();
  out = std::move(segment);
  return {};
}

std::string Segment::description() const { return {at(pages(sizeof(Header))), header().description_bytes}; }

void Segment::find_parts() {
  values_ = pages(sizeof(Header)) + pages(header().description_bytes);
  kept_ = values_ + pages(header().values_bytes);
  slots_ = kept_ + pages(header().kept_bytes);
}

size_t Segment::slot_offset(uint32_t seat, uint32_t number) const {
  return slots_ + (seat * header().slots_per_seat + number) * pages(header().slot_bytes);
}

char* Segment::slot(uint32_t seat, uint32_t number) const { return at(slot_offset(seat, number)); }

base::Status Segment::reserve_slots(uint32_t seat) {
  if (header().slots_per_seat == 0) return {};
  return memory_.reserve(slot_offset(seat, 0), header().slots_per_seat * pages(header().slot_bytes));
}

at::Tensor Segment::view(const std::shared_ptr<Segment>& segment, size_t offset, const Layout::Place& place) {
  return at::from_blob(segment->values() + offset, place.sizes, [segment](void*) {}, at::TensorOptions(place.type));
}

}  // namespace farad::shared
