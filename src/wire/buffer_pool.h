#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mutex.h"

namespace farad::wire {

/// Memory for received tensors that is used again once they die: taking 128 MiB from the system costs more, in page
/// faults, than moving 128 MiB between processes.
///
/// Any thread may call. Memory handed out keeps the pool alive, so a tensor may outlive the transport it came through.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  /// What is idle never adds up to more than `keep_bytes`; what was not asked for longest goes back first.
  static std::shared_ptr<BufferPool> make(size_t keep_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Memory of at least `bytes`, aligned to 64, not cleared; null for zero bytes. Small requests go to malloc. Throws
  /// std::bad_alloc when the system has none.
  at::DataPtr allocate(size_t bytes);

  struct Stats {
    size_t idle_bytes = 0;  ///< ready to be used again
    size_t lent_bytes = 0;  ///< in tensors
    uint64_t recycled = 0;  ///< requests that were met from what was idle
    uint64_t fresh = 0;     ///< requests that went to the system
  };
  Stats stats() const;
  /// Gives everything that is idle back to the system.
  void trim();

 private:
  struct Block;
  // Four classes to each power of two: at most a quarter of a block is unused.
  static constexpr size_t smallest = 8 << 10;
  static constexpr size_t largest = size_t{1} << 60;
  static constexpr size_t classes = 4 * 50;
  struct SizeClass {
    Block* idle = nullptr;   // a stack: the block used last is the one most likely in the cache
    uint64_t last_used = 0;  // by the pool's own count of requests
  };

  explicit BufferPool(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  static size_t class_of(size_t bytes);
  static size_t bytes_of(size_t size_class);
  Block* take_idle(size_t size_class) EXCLUDES(mutex_);
  Block* take_fresh(size_t size_class) EXCLUDES(mutex_);
  static void give_back(void* block);
  void take_back(Block* block) EXCLUDES(mutex_);
  /// Removes idle blocks, those of the class not asked for longest first, until there is room; the caller frees them.
  Block* evict(size_t room_for) REQUIRES(mutex_);
  static void free_all(Block* list);

  const size_t keep_bytes_;
  mutable base::Mutex mutex_;
  std::array<SizeClass, classes> classes_ GUARDED_BY(mutex_);
  Stats stats_ GUARDED_BY(mutex_);
  uint64_t requests_ GUARDED_BY(mutex_) = 0;
};

}  // namespace farad::wire
