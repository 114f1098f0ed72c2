#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "shared/layout.h"
#include "shared/lock.h"
#include "shm/memory.h"

namespace farad::shared {

/// What is known of the updates of one worker.
struct Tally {
  std::atomic<uint64_t> applied;
  std::atomic<uint64_t> staleness_sum;  ///< of all of them: by how many versions the model had moved on
  std::atomic<uint64_t> staleness_most;
};

/// One update that was applied.
struct Record {
  std::atomic<uint64_t> worker;
  std::atomic<uint64_t> sequence;      ///< the how-manieth of that worker
  std::atomic<uint64_t> version_read;  ///< what its gradients were computed from
  std::atomic<uint64_t> version;       ///< what it made of the model
};

/// A process that has joined.
struct Seat {
  std::atomic<uint32_t> pid;      ///< 0 = free
  std::atomic<uint64_t> started;  ///< when, in ticks of the machine: numbers of processes are used again
  std::atomic<uint64_t> begun;    ///< updates that it set out to apply
  std::atomic<uint32_t> writing;  ///< Hogwild: 1 while it applies one
};

constexpr size_t most_workers = 64;
constexpr size_t most_records = 1024;

/// What an update changes beside the values; it is kept and put back with them.
struct Books {
  std::atomic<uint64_t> version;  ///< how many updates were applied
  Tally tallies[most_workers];
};

/// The beginning of a segment. Zeroed memory is a valid one, but for the lock.
struct Header {
  std::atomic<uint64_t> magic;  ///< written last: before that it is not complete
  uint64_t format;
  uint64_t policy;
  uint64_t description_bytes;
  uint64_t values_bytes;

  Lock lock;
  /// Odd while values are being changed under the lock; never the same again after they were.
  alignas(64) std::atomic<uint64_t> sequence;
  std::atomic<int64_t> pause_until;  ///< Hogwild: on the steady clock, in ns; no update begins before
  std::atomic<double> rate;          ///< the learning rate, of all
  alignas(64) Books books;
  Books kept;

  std::atomic<uint64_t> rolled_back;
  std::atomic<uint64_t> cut_off;  ///< Hogwild: of those whose seat was taken again
  std::atomic<uint64_t> snapshots, retries, torn;
  Seat seats[most_workers];
  Record records[most_records];  ///< the last ones, by version
};

/// The memory of one model: a header, what it is for, the values, and room to keep the values while they are changed.
class Segment {
 public:
  static base::Status create(const std::string& name, const Layout& layout, uint64_t policy,
                             std::shared_ptr<Segment>& out);
  /// Somebody else's.
  static base::Status adopt(base::Fd fd, size_t size, std::shared_ptr<Segment>& out);

  /// What it is for: see Layout::description().
  std::string description() const;

  Header& header() const { return *static_cast<Header*>(memory_.data()); }
  char* values() const { return at(values_); }
  char* kept() const { return at(kept_); }
  size_t values_bytes() const { return header().values_bytes; }

  int fd() const { return memory_.fd(); }
  size_t size() const { return memory_.size(); }

  /// A tensor that lies there, and keeps the segment.
  static at::Tensor view(const std::shared_ptr<Segment>& segment, size_t offset, const Layout::Place& place);

 private:
  explicit Segment(shm::Memory memory) : memory_(std::move(memory)) {}
  char* at(size_t offset) const { return static_cast<char*>(memory_.data()) + offset; }
  void find_parts();

  const shm::Memory memory_;
  size_t values_ = 0, kept_ = 0;
};

}  // namespace farad::shared
