#include "wire/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace farad::wire {
namespace {

constexpr size_t alignment = 64;
constexpr size_t huge_page = 2 << 20;
// A block this large is worth asking for huge pages: far fewer faults when it is first written.
constexpr size_t worth_huge_pages = 2 * huge_page;

/// posix_memalign, which libtorch's allocator uses, passes by malloc's quick lists and leaves splinters; for a small
/// message that was a sixth of all instructions. So we align by ourselves.
at::DataPtr allocate_small(size_t bytes) {
  void* const memory = std::malloc(bytes + alignment);
  if (!memory) throw std::bad_alloc();
  const auto past = reinterpret_cast<uintptr_t>(memory) % alignment;
  return {static_cast<char*>(memory) + (past == 0 ? 0 : alignment - past), memory, &std::free, at::Device(at::kCPU)};
}

}  // namespace

/// Stands before the memory that is handed out.
struct alignas(alignment) BufferPool::Block {
  std::shared_ptr<BufferPool> pool;  // while lent; idle blocks must not keep the pool alive
  Block* next = nullptr;             // while idle
  const size_t size_class;
  const size_t bytes;  // with this header

  Block(size_t size_class, size_t bytes) : size_class(size_class), bytes(bytes) {}
  void* memory() { return this + 1; }
};

std::shared_ptr<BufferPool> BufferPool::make(size_t keep_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(keep_bytes));
}

BufferPool::~BufferPool() { trim(); }

// Class 4k + j holds blocks of (4 + j) * 2^k units, a unit being a quarter of the smallest block.
size_t BufferPool::class_of(size_t bytes) {
  const size_t last_unit = (std::max(bytes, smallest) - 1) / (smallest / 4);
  const size_t power = std::max<size_t>(std::bit_width(last_unit), 3) - 3;
  return 4 * power + (last_unit >> power) - 3;
}

size_t BufferPool::bytes_of(size_t size_class) { return (smallest / 4 * (4 + size_class % 4)) << (size_class / 4); }

at::DataPtr BufferPool::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, at::Device(at::kCPU)};
  if (bytes <= smallest / 2) return allocate_small(bytes);
  if (bytes > largest) throw std::bad_alloc();

  Block* block = take_idle(class_of(bytes));
  if (!block) block = take_fresh(class_of(bytes));
  block->pool = shared_from_this();
  return {block->memory(), block, &give_back, at::Device(at::kCPU)};
}

BufferPool::Block* BufferPool::take_idle(size_t size_class) {
  base::Lock lock(mutex_);
  auto& own = classes_[size_class];
  own.last_used = ++requests_;
  Block* block = own.idle;
  if (!block) return nullptr;
  own.idle = block->next;
  stats_.idle_bytes -= block->bytes;
  stats_.lent_bytes += block->bytes;
  ++stats_.recycled;
  return block;
}

BufferPool::Block* BufferPool::take_fresh(size_t size_class) {
  const size_t bytes = sizeof(Block) + bytes_of(size_class);
  const bool huge = bytes >= worth_huge_pages;
  void* memory = nullptr;
  if (::posix_memalign(&memory, huge ? huge_page : alignment, bytes) != 0) throw std::bad_alloc();
  // Only a wish: without huge pages it is slower, and nothing else.
  if (huge) (void)::madvise(memory, bytes & ~(huge_page - 1), MADV_HUGEPAGE);

  base::Lock lock(mutex_);
  stats_.lent_bytes += bytes;
  ++stats_.fresh;
  return new (memory) Block(size_class, bytes);
}

void BufferPool::give_back(void* context) {
  auto* block = static_cast<Block*>(context);
  const auto pool = std::move(block->pool);  // Perhaps the last one: then the pool goes when we are done.
  pool->take_back(block);
}

void BufferPool::take_back(Block* block) {
  Block* surplus = block;
  {
    base::Lock lock(mutex_);
    stats_.lent_bytes -= block->bytes;
    if (block->bytes <= keep_bytes_) {
      surplus = evict(block->bytes);
      auto& own = classes_[block->size_class];
      block->next = own.idle;
      own.idle = block;
      stats_.idle_bytes += block->bytes;
    }
  }
  free_all(surplus);  // Without the lock: giving pages back takes the system a while.
}

BufferPool::Block* BufferPool::evict(size_t room_for) {
  Block* evicted = nullptr;
  while (stats_.idle_bytes + room_for > keep_bytes_) {
    SizeClass* oldest = nullptr;
    for (auto& each : classes_) {
      if (each.idle && (!oldest || each.last_used < oldest->last_used)) oldest = &each;
    }
    Block* block = std::exchange(oldest->idle, oldest->idle->next);
    stats_.idle_bytes -= block->bytes;
    block->next = evicted;
    evicted = block;
  }
  return evicted;
}

void BufferPool::free_all(Block* list) {
  while (list) {
    Block* block = std::exchange(list, list->next);
    block->~Block();
    std::free(block);
  }
}

BufferPool::Stats BufferPool::stats() const {
  base::Lock lock(mutex_);
  return stats_;
}

void BufferPool::trim() {
  Block* idle = nullptr;
  {
    base::Lock lock(mutex_);
    // Making room for all that may be kept evicts all there is.
    idle = evict(keep_bytes_);
  }
  free_all(idle);
}

}  // namespace farad::wire
