#include "shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace farad::shm {
namespace {

constexpr int our_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Memory::~Memory() {
  if (data_) ::munmap(data_, size_);
}

base::Status Memory::create(const std::string& name, size_t size, Memory& out) {
  base::Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return system_error("ftruncate of a memfd");
  if (::fcntl(fd.get(), F_ADD_SEALS, our_seals) != 0) return system_error("sealing a memfd");
  return out.map(std::move(fd), size);
}

base::Status Memory::adopt(base::Fd fd, size_t size, Memory& out) {
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return system_error("fstat of a received descriptor");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & our_seals) != our_seals) {
    return {base::Code::Protocol, "[shm] refused shared memory that could be shrunk by its sender"};
  }
  if (static_cast<size_t>(info.st_size) != size) {
    return {base::Code::Protocol, "[shm] refused shared memory of " + std::to_string(info.st_size) +
                                      " bytes instead of " + std::to_string(size)};
  }
  return out.map(std::move(fd), size);
}

base::Status Memory::map(base::Fd fd, size_t size) {
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return system_error("mmap of " + std::to_string(size) + " bytes");
  Memory mapped;
  mapped.fd_ = std::move(fd);
  mapped.data_ = data;
  mapped.size_ = size;
  *this = std::move(mapped);
  return {};
}

base::Status Memory::reserve(size_t offset, size_t size) {
  while (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
    if (errno != EINTR) return system_error("reserving " + std::to_string(size) + " bytes of shared memory");
  }
  return {};
}

void Memory::discard(size_t offset, size_t size) {
  // Should the system refuse, they are given back with their last mapping, as without us.
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(size));
}

}  // namespace farad::shm
