#include "net/shm/lending.h"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <utility>

#include "wire/hand_over.h"
#include "wire/torch_compat.h"

namespace farad::net {
namespace {

/// Below this, two copies through a ring that stays in the cache are cheaper than the look-ups here. Measured by
/// `./dev bench fabric`.
constexpr uint64_t least = 256 << 10;
constexpr size_t most_capacity = size_t{1} << 40;

/// What Handle::meaning can be.
enum Meaning : uint64_t {
  yours_to_borrow = 1,  // a block of the sender's
  your_own = 2,         // a block of the receiver's, sent home
};

/// What goes over the socket beside a descriptor.
struct Introduction {
  uint64_t id;
  uint64_t capacity;
};

/// Why a tensor's memory is alive: a block that the peer lent to us ...
struct BorrowedLease {
  std::shared_ptr<shm::Block> block;
  std::weak_ptr<ShmLending> from;
  bool sent_home = false;
};

void end_borrowed(void* context) {
  std::unique_ptr<BorrowedLease> lease(static_cast<BorrowedLease*>(context));
  if (!lease->sent_home) lease->block->state().store(shm::Block::State::WithOwner, std::memory_order_release);
}

/// ... or a block of our own arena that came home.
struct OwnLease {
  std::shared_ptr<shm::Arena> arena;
  std::shared_ptr<shm::Block> block;
  bool lent_again = false;
};

void end_own(void* context) {
  std::unique_ptr<OwnLease> lease(static_cast<OwnLease*>(context));
  if (!lease->lent_again) lease->arena->give_back(std::move(lease->block));
}

template <class Lease>
at::DataPtr memory_of(std::unique_ptr<Lease> lease, at::DeleterFnPtr end) {
  void* data = lease->block->data();
  return at::DataPtr(data, lease.release(), end, at::Device(at::kCPU));
}

}  // namespace

ShmLending::ShmLending(std::shared_ptr<shm::Arena> arena, std::shared_ptr<shm::Process> peer, int socket)
    : arena_(std::move(arena)), peer_(std::move(peer)), socket_(socket) {}

uint64_t ShmLending::least_bytes() const { return least; }

bool ShmLending::lend(const at::Tensor& tensor, uint64_t data_bytes, wire::Handle& handle) {
  if (give_away(tensor, data_bytes, handle)) return true;
  auto block = arena_->allocate(data_bytes);
  if (!block) return false;
  std::memcpy(block->data(), wire::compat::const_data(tensor), data_bytes);
  if (hand_out(block, handle)) return true;
  arena_->give_back(std::move(block));
  return false;
}

bool ShmLending::give_away(const at::Tensor& tensor, uint64_t data_bytes, wire::Handle& handle) {
  const auto& memory = tensor.storage().data_ptr();
  const bool borrowed = memory.get_deleter() == &end_borrowed;
  const bool own = memory.get_deleter() == &end_own;
  if (!borrowed && !own) return false;
  const bool whole = tensor.storage().nbytes() == data_bytes && wire::compat::const_data(tensor) == memory.get();
  if (!whole || !wire::may_hand_over(tensor)) return false;
  if (borrowed) {
    auto* lease = static_cast<BorrowedLease*>(memory.get_context());
    if (lease->from.lock().get() != this) return false;  // Somebody else's.
    lease->sent_home = true;
    handle = {lease->block->id(), your_own};
    return true;
  }
  auto* lease = static_cast<OwnLease*>(memory.get_context());
  if (lease->arena != arena_ || !hand_out(lease->block, handle)) return false;
  lease->lent_again = true;
  return true;
}

bool ShmLending::hand_out(std::shared_ptr<shm::Block> block, wire::Handle& handle) {
  handle = {block->id(), yours_to_borrow};
  base::Lock lock(mutex_);
  if (!known_.contains(block->id())) {
    const Introduction introduction{block->id(), block->capacity()};
    const std::string bytes(reinterpret_cast<const char*>(&introduction), sizeof(introduction));
    // It does not wait: if the peer is so far behind that even this does not fit, the ring will do.
    if (!shm::send_with_fds(socket_, bytes, {block->fd()}, base::Clock::now()).ok()) return false;
    known_.insert(block->id());
  }
  lock.unlock();
  arena_->lend(std::move(block), peer_);
  return true;
}

base::Status ShmLending::borrow(const wire::Handle& handle, uint64_t data_bytes, at::DataPtr& out) {
  if (handle.meaning == your_own) {
    auto block = arena_->take_home(handle.block, peer_.get());
    if (!block || block->capacity() < data_bytes) {
      return {base::Code::Protocol, "[shm] a block came home that was not lent to where it came from"};
    }
    out = memory_of(std::make_unique<OwnLease>(OwnLease{arena_, std::move(block)}), &end_own);
    return {};
  }
  std::shared_ptr<shm::Block> block;
  if (handle.meaning != yours_to_borrow) return {base::Code::Protocol, "[shm] a handle without meaning"};
  if (auto status = find(handle.block, block); !status.ok()) return status;
  if (block->capacity() < data_bytes) return {base::Code::Protocol, "[shm] a block that is smaller than its tensor"};
  out = memory_of(std::make_unique<BorrowedLease>(BorrowedLease{std::move(block), weak_from_this()}), &end_borrowed);
  return {};
}

base::Status ShmLending::find(uint64_t id, std::shared_ptr<shm::Block>& block) {
  if (!borrowed_.contains(id)) forget_retired();
  while (!borrowed_.contains(id)) {
    if (auto status = receive_block(); !status.ok()) return status;
  }
  block = borrowed_.at(id);
  return {};
}

base::Status ShmLending::receive_block() {
  std::string bytes;
  std::vector<base::Fd> fds;
  // It was sent before the handle was, so it is there.
  auto status = shm::receive_with_fds(socket_, sizeof(Introduction), 1, bytes, fds, base::Clock::now());
  if (status.code() == base::Code::Invalid) return status;  // The fault is on our side.
  if (!status.ok()) return {base::Code::Protocol, "[shm] a handle to an unknown block: " + status.message()};
  Introduction introduction;
  std::memcpy(&introduction, bytes.data(), sizeof(introduction));
  if (introduction.capacity > most_capacity) return {base::Code::Protocol, "[shm] a block beyond all measure"};
  std::shared_ptr<shm::Block> block;
  status = shm::Block::adopt(introduction.id, introduction.capacity, std::move(fds[0]), block);
  if (status.ok()) borrowed_[introduction.id] = std::move(block);
  return status;
}

void ShmLending::forget_retired() {
  std::erase_if(borrowed_, [](const auto& entry) {
    return entry.second->state().load(std::memory_order_acquire) == shm::Block::State::Retired;
  });
}

}  // namespace farad::net
