#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "shared/layout.h"
#include "shared/lock.h"
#include "shm/memory.h"

namespace farad::shared {

/// The steady clock as a number, which is the same in all processes of a machine.
inline int64_t nanoseconds(base::TimePoint when) { return std::chrono::nanoseconds(when.time_since_epoch()).count(); }

/// What one process writes at each update lies on cache lines of its own: to take one from another core costs as much
/// as a part of an update.
inline constexpr size_t cache_line = 64;

/// What is known of the updates of one worker.
struct alignas(cache_line) Tally {
  std::atomic<uint64_t> applied;
  std::atomic<uint64_t> last;           ///< the sequence of the last of them
  std::atomic<uint64_t> staleness_sum;  ///< of all of them: by how many versions the model had moved on
  std::atomic<uint64_t> staleness_most;
};

/// One update that was applied.
struct Record {
  std::atomic<uint64_t> worker;
  std::atomic<uint64_t> sequence;      ///< the how-manieth of that worker
  std::atomic<uint64_t> version_read;  ///< what its gradients were computed from
  std::atomic<uint64_t> version;       ///< what it made of the model; 0 while the others are being written
};

/// A process that has joined.
struct alignas(cache_line) Seat {
  std::atomic<uint32_t> pid;       ///< 0 = free
  std::atomic<uint64_t> started;   ///< when, in ticks of the machine: numbers of processes are used again
  std::atomic<uint64_t> begun;     ///< updates that it set out to apply
  std::atomic<uint32_t> writing;   ///< Hogwild: 1 while it applies one
  std::atomic<uint32_t> busy;      ///< 1 while it is at one
  std::atomic<uint64_t> pending;   ///< Averaged: steps on its own copy that no average has in it yet
  std::atomic<uint64_t> rejected;  ///< of those begun: refused, with an error
  std::atomic<uint32_t> member;    ///< of the rounds: 1 from the first it came to
  std::atomic<uint64_t> arrived;   ///< the round it has come to, plus one
  std::atomic<uint64_t> lost_in;   ///< the round in which it was found to have ended, plus one
};

/// What one worker brings for an update that several make together.
struct Ticket {
  uint32_t seat = 0;
  uint32_t number = 0;  ///< of its slot there
  uint64_t sequence = 0;
  uint64_t version_read = 0;
  uint64_t updates = 1;  ///< of its own that are in it
  double samples = 1;
  double seen = 0;  ///< Averaged: Books::samples when its copy was the shared values
};

enum class SlotState : uint32_t { Free, Filling, Ready };

/// What is known of what lies in a slot.
struct Slot {
  std::atomic<SlotState> state;
  std::atomic<uint64_t> sequence, version_read, updates;
  std::atomic<double> samples, seen;
};

/// Why a round came to nothing.
enum class Failure : uint64_t { None, Lost, Threw };

constexpr size_t most_workers = 64;
constexpr uint32_t no_seat = most_workers;  ///< of one that only reads
constexpr size_t most_records = 1024;
constexpr size_t most_slots = 8;  ///< of one worker

/// What an update changes beside the values; it is kept and put back with them.
struct Books {
  std::atomic<uint64_t> version;  ///< how many updates were applied
  std::atomic<double> rate;       ///< the learning rate, of all
  std::atomic<double> samples;    ///< Averaged: how many have gone into the values so far
  std::atomic<uint64_t> round;    ///< the one that is open
  std::atomic<uint64_t> founded;  ///< 1 once the first has ended, so that it is known who comes
  std::atomic<uint64_t> failed_round, failure, failed_seat, failed_pid;  ///< the last that failed, plus one, and why
  Tally tallies[most_workers];
};

/// The beginning of a segment. Zeroed memory is a valid one, but for the lock.
struct Header {
  std::atomic<uint64_t> magic;  ///< written last: before that it is not complete
  uint64_t format;
  uint64_t policy;
  uint64_t description_bytes;
  uint64_t values_bytes;
  uint64_t kept_bytes;  ///< as many, or 0 if nobody changes them in a way that has to be put back
  uint64_t slot_bytes;
  uint64_t slots_per_seat;  ///< 0 = the policy needs none
  uint64_t members;         ///< how many the first round waits for
  uint64_t identity;        ///< that no other model has

  Lock lock;
  /// Odd while values are being changed under the lock; never the same again after they were.
  alignas(cache_line) std::atomic<uint64_t> sequence;
  std::atomic<int64_t> pause_until;  ///< Hogwild: on the steady clock, in ns; no update begins before
  alignas(cache_line) Books books;
  Books kept;

  std::atomic<uint64_t> rolled_back;
  std::atomic<uint64_t> cut_off;  ///< Hogwild: of those whose seat was taken again
  std::atomic<uint64_t> snapshots, retries, waits, torn;

  std::atomic<uint32_t> round_bell;  ///< rung when a round has ended or a member left
  std::atomic<int64_t> round_began;  ///< when the first came, on the steady clock, in ns
  struct {
    std::atomic<uint64_t> round;  ///< plus one
    std::atomic<uint32_t> seat, pid;
  } lost;  ///< the last member that ended without leaving
  std::atomic<uint64_t> members_lost;

  std::atomic<uint32_t> work_bell, room_bell;  ///< rung when a slot was filled; when some were freed
  std::atomic<uint64_t> manager;               ///< its seat, plus one
  std::atomic<uint64_t> was_managed;           ///< 1 once there was one
  std::atomic<uint64_t> next_served;
  std::atomic<uint64_t> managers_lost, duplicates, discarded;

  Slot slots[most_workers][most_slots];
  std::atomic<uint64_t> seats_used;  ///< the first so many were ever taken, by anybody
  std::atomic<uint64_t> joined;      ///< how many processes ever have, readers too
  Seat seats[most_workers];
  Record records[most_records];  ///< the last ones, by version
};

/// The memory of one model: a header, what it is for, the values, room to keep the values while they are changed, and
/// slots in which workers leave things for others, both if the policy needs them.
class Segment {
 public:
  struct Use {
    uint64_t policy = 0;
    uint64_t slots_per_seat = 0;
    uint64_t members = 0;
    bool keeps = true;  ///< whether it has room to keep the values in: a Writer needs it
  };
  static base::Status create(const std::string& name, const Layout& layout, Use use, std::shared_ptr<Segment>& out);
  /// Somebody else's.
  static base::Status adopt(base::Fd fd, size_t size, std::shared_ptr<Segment>& out);

  /// What it is for: see Layout::description().
  std::string description() const;

  Header& header() const { return *static_cast<Header*>(memory_.data()); }
  char* values() const { return at(values_); }
  char* kept() const { return at(kept_); }
  size_t values_bytes() const { return header().values_bytes; }
  char* slot(uint32_t seat, uint32_t number) const;
  /// Before they are used: only those of seats whose process ever brought anything cost memory.
  base::Status reserve_slots(uint32_t seat);

  int fd() const { return memory_.fd(); }
  size_t size() const { return memory_.size(); }

  /// A tensor that lies there, and keeps the segment.
  static at::Tensor view(const std::shared_ptr<Segment>& segment, size_t offset, const Layout::Place& place);

 private:
  explicit Segment(shm::Memory memory) : memory_(std::move(memory)) {}
  char* at(size_t offset) const { return static_cast<char*>(memory_.data()) + offset; }
  void find_parts();
  size_t slot_offset(uint32_t seat, uint32_t number) const;

  shm::Memory memory_;
  size_t values_ = 0, kept_ = 0, slots_ = 0;
};

}  // namespace farad::shared
