#pragma once

#include <farad/shared.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "shared/broker.h"
#include "shared/fork_mark.h"
#include "shared/queue.h"
#include "shared/reader.h"
#include "shared/rounds.h"
#include "shared/seats.h"
#include "shared/slots.h"
#include "shared/stepper.h"
#include "shared/writer.h"

namespace farad::shared {

/// Without those that are there under another name too: they are bound with it.
std::vector<detail::NamedTensor> without_doubles(std::vector<detail::NamedTensor> tensors);
std::vector<Entry> entries_of(std::vector<detail::NamedTensor> tensors);

/// What a step is made of.
struct Given {
  std::vector<at::Tensor> gradients;  ///< of the trained parameters, in their order
  std::vector<at::Tensor> buffers;    ///< likewise; none, or undefined where the model has it already
};

/// What a Model is made of in one process. Its caller's thread, one at a time.
struct Model::State {
  State(std::string name, std::vector<detail::NamedTensor> tensors, const detail::OptimizerSettings& settings,
        Options given);
  ~State();

  base::TimePoint deadline() const { return base::deadline_after(base::Clock::now(), options.patience); }
  Header& header() const { return segment->header(); }
  bool is_worker() const { return seat != no_seat; }
  Seat& my_seat() const { return header().seats[seat]; }
  Policy policy() const { return options.policy; }
  void must_be(Policy wanted, const char* what) const;

  /// Once the segment is there: this process becomes one of its workers or, if it is only to read or no seat is free,
  /// a reader.
  void join();
  void sit(uint32_t there);
  void look_on();
  /// A process that was forked off is another worker, or reader.
  void be_here();
  /// A reader that may be one becomes a worker, if a seat is free by now; else this throws. Names what needs one.
  void be_worker(const char* what);
  /// Throws if this process is only to read.
  void may_change(const char* what) const;
  /// The room for what this process leaves for others, when it first does.
  void reserve_slots();

  /// What the bound module lies in, and where there.
  const std::shared_ptr<Segment>& home() const { return own ? own : segment; }
  const Layout& home_layout() const { return own ? *own_layout : layout; }
  /// The values there.
  std::vector<at::Tensor> views() const;
  void bind_all() const;

  /// What of the model goes to a place elsewhere: the values, or the average of the trained ones.
  static Reader::Part part(const Layout::Place& place, bool average, const at::Tensor& to);
  Reader::Seen copy(const std::vector<Reader::Part>& parts);
  /// Averaged: the copy of this process becomes what the model is; steps that are not in there are dropped.
  void renew_own();

  Update step(Given given, double samples);
  Update step_alone(const Given& given);
  Update step_with_all(const Given& given, double samples);
  Update submit(const Given& given, double samples);
  uint64_t average();
  /// If a round came about that this process could not wait for: its steps in there are none of those to come.
  void note_what_is_in();
  Update step_own(const Given& given, double samples);
  /// The update that gradients of several make, and that their copies make.
  Writer::Work by_mean(const std::vector<Ticket>& tickets);
  Writer::Work by_average(const std::vector<Ticket>& tickets);
  void observe_together(Writer::Work& work, const std::vector<Ticket>& tickets,
                        const std::shared_ptr<std::vector<at::Tensor>>& gradients);

  const std::string name;
  const std::vector<detail::NamedTensor> bound;
  const detail::OptimizerSettings settings;
  const Options options;
  const Layout layout;
  const std::optional<Layout> own_layout;  // Averaged
  std::shared_ptr<Segment> segment;
  std::shared_ptr<Segment> own;  // Averaged: the copy of this process, and what its optimizer remembers
  std::unique_ptr<Broker> broker;
  ForkMark joined;  // Not in a process that was forked off, until it has itself.
  uint32_t seat = no_seat;
  uint64_t stream = 0;
  bool has_slots = false;
  std::optional<Writer> writer;
  std::optional<Reader> reader;
  std::optional<Stepper> stepper;
  std::optional<Slots> slots;
  std::optional<Rounds> rounds;
  std::optional<Queue> queue;
  uint64_t version_read = 0;
  bool pulls = false;          // and so says itself what it computes from
  double samples_of_own = 0;   // Averaged: since the last average
  double samples_seen = 0;     // Averaged: those in the values that the copy was then
  uint64_t last_sequence = 0;  // Averaged: of the last step on the own copy
  Ticket brought;              // Averaged: to the last round; some of it may not be known to be in the average
};

}  // namespace farad::shared
