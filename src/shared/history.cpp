#include "shared/history.h"

namespace farad::shared {

void write_down(Header& header, const Ticket& update, uint64_t version) {
  // Where nothing is locked, one that was held up for so long would write over a newer one.
  if (header.books.version.load(std::memory_order_relaxed) >= version + most_records) return;
  auto& record = header.records[version % most_records];
  // So that whoever finds one version before and after has found what belongs to it.
  record.version.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.worker.store(update.seat, std::memory_order_relaxed);
  record.sequence.store(update.sequence, std::memory_order_relaxed);
  record.version_read.store(update.version_read, std::memory_order_relaxed);
  record.version.store(version, std::memory_order_release);
}

bool look_up(const Header& header, uint64_t version, Ticket& update) {
  const auto& record = header.records[version % most_records];
  if (record.version.load(std::memory_order_acquire) != version) return false;
  update.seat = static_cast<uint32_t>(record.worker.load(std::memory_order_relaxed));
  update.sequence = record.sequence.load(std::memory_order_relaxed);
  update.version_read = record.version_read.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  return record.version.load(std::memory_order_relaxed) == version;
}

}  // namespace farad::shared
