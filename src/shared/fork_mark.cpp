#include "shared/fork_mark.h"

#include <sys/mman.h>

#include "shm/fd.h"

namespace farad::shared {
namespace {

constexpr size_t mark_bytes = 4096;  // The kernel empties whole pages.

}  // namespace

ForkMark::ForkMark() {
  void* const at = ::mmap(nullptr, mark_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) shm::system_error("mmap").raise();
  page_ = static_cast<bool*>(at);
  if (::madvise(at, mark_bytes, MADV_WIPEONFORK) == 0) return;
  const auto status = shm::system_error("madvise");
  ::munmap(at, mark_bytes);
  status.raise();
}

ForkMark::~ForkMark() { ::munmap(page_, mark_bytes); }

}  // namespace farad::shared
