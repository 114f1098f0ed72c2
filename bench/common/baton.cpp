#include "common/baton.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/fd.h"
#include "base/futex.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint32_t ended = 2;  // Whose turn it is when one of them has left.
constexpr size_t cargo_bytes = 1 << 20;

}  // namespace

/// All zero to begin with.
struct Baton::Page {
  alignas(64) std::atomic<uint32_t> turn;
  alignas(64) std::atomic<uint32_t> asleep[2];
  std::atomic<uint32_t> cpu[2];
  std::atomic<int> task;
  alignas(64) float cargo[cargo_bytes / sizeof(float)];
};

Baton::Baton(const std::string& meeting, bool first) : self_(first ? 0 : 1), path_(meeting.substr(strlen("file://"))) {
  const base::Fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  void* memory = MAP_FAILED;
  if (file && ::ftruncate(file.get(), sizeof(Page)) == 0) {
    memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (memory == MAP_FAILED) throw std::runtime_error("[bench] " + path_ + ": " + std::strerror(errno));
  page_ = static_cast<Page*>(memory);
  next_ = page_->cargo;
}

Baton::~Baton() {
  page_->turn.store(ended);
  base::futex_wake(page_->turn, 1);
  ::munmap(page_, sizeof(Page));
  if (self_ == 0) ::unlink(path_.c_str());
}

void Baton::pass(int task) {
  page_->task.store(task, std::memory_order_relaxed);
  page_->cpu[self_].store(static_cast<uint32_t>(::sched_getcpu()), std::memory_order_relaxed);
  page_->turn.store(1 - self_);
  if (page_->asleep[1 - self_].load()) base::futex_wake(page_->turn, 1);
}

bool Baton::await() {
  if (!look()) {
    page_->asleep[self_].store(1);
    for (uint32_t turn; (turn = page_->turn.load()) == 1 - self_;) base::futex_wait(page_->turn, turn, base::never);
    page_->asleep[self_].store(0);
  }
  next_ = page_->cargo;
  writes_ = false;
  return page_->turn.load() == self_;
}

int Baton::task() const { return page_->task.load(std::memory_order_relaxed); }

/// Whether the other's turn ended while we were awake.
bool Baton::look() const {
  const auto over = [&] { return page_->turn.load(std::memory_order_acquire) != 1 - self_; };
  if (page_->cpu[1 - self_].load(std::memory_order_relaxed) == static_cast<uint32_t>(::sched_getcpu())) {
    for (int i = 0; i < 4 && !over(); ++i) ::sched_yield();
  } else {
    for (const auto until = Clock::now() + 50us; !over() && Clock::now() < until;) {
    }
  }
  return over();
}

void Baton::put(const at::Tensor& tensor) {
  if (!std::exchange(writes_, true)) next_ = page_->cargo;
  const auto dense = tensor.contiguous();
  std::memcpy(next_, dense.data_ptr(), dense.nbytes());
  next_ += dense.numel();
}

at::Tensor Baton::take(at::IntArrayRef sizes) {
  auto tensor = at::empty(sizes);
  std::memcpy(tensor.data_ptr(), next_, tensor.nbytes());
  next_ += tensor.numel();
  return tensor;
}

}  // namespace farad::bench
