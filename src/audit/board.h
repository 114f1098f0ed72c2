#pragma once

#include <ATen/core/TensorBody.h>

#include <atomic>
#include <cstdint>

namespace farad::audit {

/// Of what could grow with the number of updates, no more values than that are kept.
inline constexpr uint64_t most_kept_bytes = uint64_t{256} << 20;

/// Memory that the audit has in common with the processes it starts, made before they are. Each row is written by one
/// process; the audit reads when all have ended.
class Board {
 public:
  struct Shape {
    int workers = 0;
    int rounds = 0;
    int64_t elements = 0;  ///< of the parameters that are trained
    c10::ScalarType type = c10::ScalarType::Double;
    bool averages = false;
  };

  struct SentRow {
    bool there;
    uint64_t version_read, average_read, batch, gradient;
    int64_t samples;
  };
  static constexpr int most_workers = 32;
  struct PartRow {
    int worker;
    uint64_t sequence;
    double samples;
  };
  struct AppliedRow {
    bool finite;
    uint64_t version, gradient;
    uint64_t slot;  ///< plus one; 0 = not kept
    int count;      ///< of the parts
    PartRow parts[most_workers];
  };
  /// What a worker found when it joined.
  struct Joined {
    uint64_t device, inode;  ///< of the memory that its parameters lie in
    uint64_t values;         ///< hash of what it pulled
    uint64_t canary;         ///< as it read it in its parameters
    int seat;                ///< which of the model's workers it is
    int pid;
  };
  /// At the end.
  struct Ended {
    uint64_t version;         ///< of the model
    uint64_t applied;         ///< updates, by the model's own count
    uint64_t canary;          ///< that was written
    uint64_t snapshots, torn; /**< that were taken, and those that the model says were not whole */
  };

  /// What processes count together.
  enum Counter {
    Began,  ///< Managed: those whose first gradient is on its way
    AtTheDoor,
    Inside,
    MostInside,
    First,
    Snapshots,
    TornSilently,
    TornAndSaid,
    Done,
    AllDone,
    counters
  };

  explicit Board(const Shape& shape);
  ~Board();
  Board(const Board&) = delete;

  // By worker processes. A turn counts the meetings that one process was at; all have to come before one goes on.
  void meet(uint32_t& turn);
  void lock();  ///< a harness's own, not the model's
  void unlock();
  std::atomic<uint64_t>& counter(Counter which) { return head_->counts[which]; }
  AppliedRow& append();
  /// A place for the values of another gradient that was applied; 0 if there is none left.
  uint64_t take_slot();

  // By all.
  const Shape& shape() const { return shape_; }
  /// Whether its values are kept, as read and as computed. Those of all workers or of none: where they are brought
  /// together, what one of them lacks could not be compared.
  bool in_sample(int, uint64_t sequence) const { return (sequence - 1) % stride_ == 0; }
  /// Which of its gradients a worker delivered as its how-manieth, from 1 on; 0 = one that does not count.
  uint64_t& delivered(int worker, uint64_t count) {
    return delivered_[static_cast<uint64_t>(worker) * deliveries() + count];
  }
  /// The worker that has this seat at the model.
  int worker_at(int seat) const;
  SentRow& sent(int worker, uint64_t sequence) { return sent_[number(worker, sequence)]; }
  Joined& joined(int worker) { return joined_[worker]; }
  Ended& ended() { return head_->ended; }
  uint64_t applied() const;
  const AppliedRow& applied(uint64_t index) const { return applied_[index]; }

  // Flat tensors that lie here.
  at::Tensor read_values(int worker, uint64_t sequence) { return place(sample(worker, sequence)); }
  at::Tensor read_average(int worker, uint64_t sequence) { return place(samples_ + sample(worker, sequence)); }
  at::Tensor sent_gradient(int worker, uint64_t sequence) { return place(2 * samples_ + sample(worker, sequence)); }
  at::Tensor applied_gradient(uint64_t slot) { return place(3 * samples_ + slot - 1); }
  at::Tensor last() { return special(0); }
  at::Tensor last_average() { return special(1); }
  at::Tensor moment(uint64_t index) { return special(2 + index); }  ///< two, for harnesses
  /// After one more step; Averaged: that of each worker.
  at::Tensor probed(int worker = 0) { return special(4 + static_cast<uint64_t>(worker)); }

 private:
  struct Head {
    std::atomic<uint32_t> arrivals, locked;
    std::atomic<uint64_t> appended, slots;
    std::atomic<uint64_t> counts[counters];
    Ended ended;
  };
  uint64_t number(int worker, uint64_t sequence) const {
    return (sequence - 1) * static_cast<uint64_t>(shape_.workers) + static_cast<uint64_t>(worker);
  }
  uint64_t sample(int worker, uint64_t sequence) const { return number(worker, (sequence - 1) / stride_ + 1); }
  uint64_t slots() const { return 2 * samples_ + static_cast<uint64_t>(shape_.workers); }
  uint64_t fixed() const { return 3 * samples_ + slots(); }
  uint64_t deliveries() const { return 2 * static_cast<uint64_t>(shape_.rounds) + 2; }
  at::Tensor special(uint64_t index) { return place(fixed() + index); }
  at::Tensor place(uint64_t index);

  const Shape shape_;
  uint64_t stride_ = 1;   // the gradients of each so-manieth round are kept
  uint64_t samples_ = 0;  // so many are
  uint64_t capacity_ = 0;
  size_t bytes_ = 0;
  char* memory_ = nullptr;
  Head* head_ = nullptr;
  SentRow* sent_ = nullptr;
  AppliedRow* applied_ = nullptr;
  Joined* joined_ = nullptr;
  uint64_t* delivered_ = nullptr;
  char* values_ = nullptr;
};

}  // namespace farad::audit
