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

/// What a Model is made of in one process. Its caller's thread, one at a time.
struct Model::State {
  State(std::string name, std::vector<detail::NamedTensor> tensors, const detail::OptimizerSettings& settings,
        Options given);
  ~State();

  base::TimePoint deadline() const { return base::deadline_after(base::Clock::now(), options.patience); }
  Header& header() const { return segment->header(); }
  Seat& my_seat() const { return header().seats[seat]; }
  Policy policy() const { return options.policy; }
  void must_be(Policy wanted, const char* what) const;

  /// Once the segment is there: this process becomes one of its workers.
  void join();
  void sit(uint32_t there);
  /// A process that was forked off is another worker.
  void be_here();

  /// What the bound module lies in, and where there.
  const std::shared_ptr<Segment>& home() const { return own ? own : segment; }
  const Layout& home_layout() const { return own_layout ? *own_layout : layout; }
  /// The values there.
  std::vector<at::Tensor> views() const;
  void bind_all() const;

  /// What of the model goes to a place elsewhere: the values, or the average of the trained ones.
  static Reader::Part part(const Layout::Place& place, bool average, const at::Tensor& to);
  Reader::Seen copy(const std::vector<Reader::Part>& parts);
  /// Averaged: the copy of this process becomes what the model is; steps that are not in there are dropped.
  void renew_own();

  Update step_alone(const std::vector<at::Tensor>& gradients);
  Update step_with_all(const std::vector<at::Tensor>& gradients, double samples);
  Update submit(const std::vector<at::Tensor>& gradients, double samples);
  /// If a round came about that this process could not wait for: its steps in there are none of those to come.
  void note_what_is_in();
  Update step_own(const std::vector<at::Tensor>& gradients, double samples);
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
  ForkMark sits;  // Not in a process that was forked off, until it does itself.
  uint32_t seat = 0;
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
