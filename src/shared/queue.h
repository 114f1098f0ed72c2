#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "shared/segment.h"
#include "shared/slots.h"
#include "shared/writer.h"

namespace farad::shared {

/// Gradients on their way from workers to the one process that applies them, the manager. Each worker has a few slots;
/// while all of them are full it waits. A manager that ended is replaced by the next process that asks to be one, and
/// until there is one, by those who wait for it. What is taken twice after a manager was killed is applied once.
///
/// One thread at a time.
class Queue {
 public:
  /// An update by what was taken, in that order.
  using Ending = std::function<Writer::Work(const std::vector<Ticket>&)>;

  struct Batch {
    size_t most = 1;                      ///< applied by one update, whoever does it
    std::chrono::milliseconds within{0};  ///< how long a manager waits for as many once the first is there
  };
  Queue(std::shared_ptr<Segment> segment, uint32_t seat, Writer& writer, const Slots& slots, Batch batch)
      : segment_(std::move(segment)), seat_(seat), writer_(writer), slots_(slots), batch_(batch) {}

  /// Leaves these for the manager. Timeout if there is no room in time.
  base::Status submit(Ticket mine, const std::vector<at::Tensor>& tensors, const Ending& ending,
                      base::TimePoint deadline);
  /// Waits until all that was submitted here is applied.
  base::Status settle(const Ending& ending, base::TimePoint deadline);

  /// As the manager: one update, by what comes until then. `taken`: by how many; 0 if none came, or another process is
  /// the manager.
  base::Status serve(const Ending& ending, base::TimePoint deadline, size_t& taken);

 private:
  bool find_room(uint32_t& number) const;
  base::Status wait_for_room(const std::function<bool()>& there_is, const Ending& ending, base::TimePoint deadline);
  bool is_managed_by_another() const;
  std::vector<Ticket> what_is_ready() const;
  std::vector<Ticket> left_by(uint32_t seat) const;
  std::vector<Ticket> taken_from(std::vector<Ticket>& left) const;
  void apply(const std::vector<Ticket>& tickets, const Ending& ending);

  const std::shared_ptr<Segment> segment_;
  const uint32_t seat_;
  Writer& writer_;
  const Slots& slots_;
  const Batch batch_;
};

}  // namespace farad::shared
