#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "shm/fd.h"

namespace farad::shm {

/// Memory that processes share by passing its descriptor; it has no name in any file system, so it ends with its last
/// user, however that one ends. Sealed against shrinking and growing, so that nobody can take pages from under us.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  /// New, zeroed. Pages are only promised by reserve(): touching others may end the process when memory runs out.
  static base::Status create(const std::string& name, size_t size, Memory& out);
  /// Somebody else's; refused unless it has exactly `size` bytes and the seals.
  static base::Status adopt(base::Fd fd, size_t size, Memory& out);

  /// Makes the kernel set the pages aside now. Fails, instead of killing us later, if there are none.
  base::Status reserve(size_t offset, size_t size);
  /// Gives these pages back, also if others have them mapped; whoever looks finds zeros. Before close_fd().
  void discard(size_t offset, size_t size);
  /// Closes the descriptor. What is mapped stays, but cannot be reserved or passed on any more.
  void close_fd() { fd_.reset(); }

  void* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  base::Status map(base::Fd fd, size_t size);

  base::Fd fd_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace farad::shm
