#include "shm/arena.h"

#include <algorithm>
#include <bit>
#include <new>

namespace farad::shm {
namespace {

/// Four sizes to each power of two, so that at most a fifth is unused and blocks fit again.
size_t capacity_for(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 4, 4096);
  return (bytes + step - 1) / step * step;
}

/// Blocks of one size are used in turn until together they are larger than what a core keeps to itself. 512 KiB into a
/// block that another core has just read took 49 us; into the one that was used longest ago of four, 12 us.
constexpr size_t in_turn = 4 << 20;

/// Each block of ours holds a descriptor as long as it lives, because a peer may yet have to be given it. The rest of
/// what a process may open is left to sockets, files and the program.
size_t most_blocks() { return std::max<size_t>(most_descriptors() / 4, 1); }

}  // namespace

base::Status Block::create(uint64_t id, size_t capacity, std::shared_ptr<Block>& out) {
  Memory memory;
  if (auto s = Memory::create("farad-block", header_bytes + capacity, memory); !s.ok()) return s;
  if (auto s = memory.reserve(0, header_bytes + capacity); !s.ok()) return s;
  new (memory.data()) std::atomic<State>(State::WithOwner);
  out = std::shared_ptr<Block>(new Block(id, std::move(memory)));
  return {};
}

base::Status Block::adopt(uint64_t id, size_t capacity, base::Fd fd, std::shared_ptr<Block>& out) {
  Memory memory;
  if (auto s = Memory::adopt(std::move(fd), header_bytes + capacity, memory); !s.ok()) return s;
  memory.close_fd();  // There may be more blocks than a process may have descriptors.
  out = std::shared_ptr<Block>(new Block(id, std::move(memory)));
  return {};
}

void Block::retire() {
  state().store(State::Retired, std::memory_order_release);
  memory_.discard(header_bytes, capacity());
}

Arena::Arena(size_t limit) : limit_(limit), most_blocks_(most_blocks()) {}

std::shared_ptr<Block> Arena::allocate(size_t bytes) {
  const size_t capacity = capacity_for(bytes);
  uint64_t id = 0;
  {
    base::Lock lock(mutex_);
    if (auto block = take_idle(capacity, in_turn)) return block;
    collect(false);
    if (auto block = take_idle(capacity, in_turn)) return block;
    if (is_full(capacity)) {
      if (auto block = take_idle(capacity, 0)) return block;
    }
    if (!make_room(capacity)) return nullptr;
    bytes_ += capacity;
    ++blocks_;
    id = ++ids_;
  }
  std::shared_ptr<Block> block;
  if (!Block::create(id, capacity, block).ok()) {
    base::Lock lock(mutex_);
    bytes_ -= capacity;
    --blocks_;
  }
  return block;
}

/// The one that was used longest ago, if all of its size that are idle have at least so many bytes.
std::shared_ptr<Block> Arena::take_idle(size_t capacity, size_t out_of_bytes) {
  const auto fits = [&](const auto& block) { return block->capacity() == capacity; };
  const auto found = std::find_if(idle_.begin(), idle_.end(), fits);
  if (found == idle_.end()) return nullptr;
  const auto count = static_cast<size_t>(std::count_if(found, idle_.end(), fits));
  if (count * capacity < out_of_bytes) return nullptr;
  auto block = std::move(*found);
  idle_.erase(found);
  return block;
}

void Arena::collect(bool also_of_the_dead) {
  for (auto loan = loans_.begin(); loan != loans_.end();) {
    const bool done = loan->second.block->state().load(std::memory_order_acquire) == Block::State::WithOwner ||
                      (also_of_the_dead && loan->second.borrower->ended());
    if (done) idle_.push_back(std::move(loan->second.block));
    loan = done ? loans_.erase(loan) : std::next(loan);
  }
}

bool Arena::is_full(size_t capacity) const { return bytes_ + capacity > limit_ || blocks_ >= most_blocks_; }

bool Arena::make_room(size_t capacity) {
  if (capacity > limit_) return false;
  if (is_full(capacity)) collect(true);
  while (is_full(capacity) && !idle_.empty()) {
    idle_.front()->retire();
    bytes_ -= idle_.front()->capacity();
    --blocks_;
    idle_.erase(idle_.begin());
  }
  return !is_full(capacity);
}

void Arena::give_back(std::shared_ptr<Block> block) {
  base::Lock lock(mutex_);
  idle_.push_back(std::move(block));
}

void Arena::lend(std::shared_ptr<Block> block, std::shared_ptr<Process> borrower) {
  block->state().store(Block::State::Lent, std::memory_order_release);
  base::Lock lock(mutex_);
  const uint64_t id = block->id();
  loans_.emplace(id, Loan{std::move(block), std::move(borrower)});
}

std::shared_ptr<Block> Arena::take_home(uint64_t id, const Process* borrower) {
  base::Lock lock(mutex_);
  const auto loan = loans_.find(id);
  if (loan == loans_.end() || loan->second.borrower.get() != borrower) return nullptr;
  auto block = std::move(loan->second.block);
  loans_.erase(loan);
  return block;
}

Arena::Stats Arena::stats() {
  base::Lock lock(mutex_);
  collect(true);
  return {bytes_, idle_.size(), loans_.size()};
}

}  // namespace farad::shm
