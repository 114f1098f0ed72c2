#pragma once

#include <cstdint>

namespace farad::audit {

struct File {
  uint64_t device = 0;
  uint64_t inode = 0;  ///< 0: memory of this process alone
};

/// What the memory at an address of this process is kept in.
File file_behind(const void* address);

}  // namespace farad::audit
