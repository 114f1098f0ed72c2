#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "shm/memory.h"
#include "shm/process.h"

namespace farad::shm {

/// A piece of memory that its owner can lend to another process, as a memfd of its own.
class Block {
 public:
  enum class State : uint32_t {
    WithOwner,
    Lent,     ///< The borrower has it; it says so itself when it is done, by a store and no message.
    Retired,  ///< The owner has let go of it, and whoever has it mapped should too.
  };

  /// In front of the data, so that those stay aligned to pages.
  static constexpr size_t header_bytes = 4096;

  static base::Status create(uint64_t id, size_t capacity, std::shared_ptr<Block>& out);
  /// Another process's, whose descriptor came with these numbers.
  static base::Status adopt(uint64_t id, size_t capacity, base::Fd fd, std::shared_ptr<Block>& out);

  uint64_t id() const { return id_; }
  size_t capacity() const { return memory_.size() - header_bytes; }
  char* data() const { return static_cast<char*>(memory_.data()) + header_bytes; }
  std::atomic<State>& state() const { return *static_cast<std::atomic<State>*>(memory_.data()); }
  /// The owner lets go of it, when nobody uses what is in it. Its pages go at once: who has it mapped need not notice
  /// for a long time.
  void retire();
  /// Of a block of ours; an adopted one has none.
  int fd() const { return memory_.fd(); }

 private:
  Block(uint64_t id, Memory memory) : id_(id), memory_(std::move(memory)) {}
  const uint64_t id_;
  Memory memory_;
};

/// The memory a worker lends to others on its machine. Blocks are used again: fresh pages cost more than the copy into
/// them; but in turn, because what another core has just read costs several times as much to write. A block that was
/// lent comes back when its borrower says so or is known to have ended; not before, because one that is only silent may
/// still write. Any thread.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static std::shared_ptr<Arena> make(size_t limit) { return std::shared_ptr<Arena>(new Arena(limit)); }

  /// The caller's alone, until it lends it or gives it back. Null if that would take more than the limit, or more
  /// descriptors than a quarter of those that the process may have.
  std::shared_ptr<Block> allocate(size_t bytes) EXCLUDES(mutex_);
  void give_back(std::shared_ptr<Block> block) EXCLUDES(mutex_);

  void lend(std::shared_ptr<Block> block, std::shared_ptr<Process> borrower) EXCLUDES(mutex_);
  /// A block that the borrower sends home with something in it. Null unless it was lent to exactly that one.
  std::shared_ptr<Block> take_home(uint64_t id, const Process* borrower) EXCLUDES(mutex_);

  struct Stats {
    size_t bytes = 0;  ///< all blocks
    size_t idle = 0;   ///< blocks ready for use
    size_t lent = 0;   ///< blocks with others
  };
  Stats stats() EXCLUDES(mutex_);

 private:
  struct Loan {
    std::shared_ptr<Block> block;
    std::shared_ptr<Process> borrower;
  };

  explicit Arena(size_t limit);
  std::shared_ptr<Block> take_idle(size_t capacity, size_t out_of_bytes) REQUIRES(mutex_);
  void collect(bool also_of_the_dead) REQUIRES(mutex_);
  bool is_full(size_t capacity) const REQUIRES(mutex_);
  bool make_room(size_t capacity) REQUIRES(mutex_);

  const size_t limit_;
  const size_t most_blocks_;
  base::Mutex mutex_;
  uint64_t ids_ GUARDED_BY(mutex_) = 0;
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  size_t blocks_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Block>> idle_ GUARDED_BY(mutex_);  // The one used last is at the end.
  std::map<uint64_t, Loan> loans_ GUARDED_BY(mutex_);
};

}  // namespace farad::shm
