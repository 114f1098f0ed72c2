// How a Model in shared memory is changed, under each policy.

#include <farad/error.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "autograd/engine/run_local.h"
#include "base/check.h"
#include "shared/saving.h"
#include "shared_model_state.h"

namespace farad::shared {
namespace {

/// One that a worker has set out to make: counted as begun now, and as rejected in the end unless it came about.
class Attempt {
 public:
  explicit Attempt(Seat& seat) : seat_(seat) {
    seat_.busy.store(1);
    sequence_ = seat_.begun.fetch_add(1) + 1;
  }
  ~Attempt() {
    if (!succeeded_) seat_.rejected.fetch_add(1);
    seat_.busy.store(0);
  }
  Attempt(const Attempt&) = delete;

  uint64_t sequence() const { return sequence_; }
  void succeeded() { succeeded_ = true; }

 private:
  Seat& seat_;
  uint64_t sequence_ = 0;
  bool succeeded_ = false;
};

std::vector<at::Tensor> buffers_of(const std::vector<detail::NamedTensor>& tensors) {
  std::vector<at::Tensor> buffers;
  for (const auto& one : tensors) {
    if (one.buffer) buffers.push_back(one.tensor);
  }
  return buffers;
}

std::vector<at::Tensor> gradients_of(const std::vector<detail::NamedTensor>& tensors) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(tensors.size());
  for (const auto& one : tensors) {
    if (one.trained) gradients.push_back(one.tensor.grad());
  }
  return gradients;
}

/// What a backward pass from `loss` gives for each of those that are trained; undefined where it does not get.
std::vector<at::Tensor> gradients_by(const at::Tensor& loss, const std::vector<detail::NamedTensor>& tensors) {
  FARAD_CHECK(loss.defined() && loss.requires_grad(),
              "[shared] learn: the loss does not require a gradient and has no history");
  FARAD_CHECK(loss.numel() == 1, "[shared] learn: the loss is no scalar but has ", loss.numel(), " elements");
  auto found = autograd::run_local({loss}, {}).gradients;
  std::vector<at::Tensor> gradients;
  gradients.reserve(tensors.size());
  for (const auto& one : tensors) {
    if (!one.trained) continue;
    const auto its = std::ranges::find_if(found, [&](const auto& each) { return each.leaf.is_same(one.tensor); });
    gradients.push_back(its == found.end() ? at::Tensor() : std::move(its->gradient));
  }
  return gradients;
}

/// As tensors go through a slot, where the policy has slots.
std::vector<at::Tensor> together(const Given& given) {
  auto all = given.gradients;
  all.insert(all.end(), given.buffers.begin(), given.buffers.end());
  return all;
}

/// What an average is made of.
struct Shares {
  std::vector<double> each;  ///< of the copies that are brought
  double stays = 0;          ///< of the shared values
  double brought = 0;        ///< how many samples come to those that are in the shared values
};

/// A copy counts for its samples among all that are brought. If others have averaged without it, then it lacks samples
/// that are in the shared values, and counts as if those were brought beside it once more, by the shared values.
Shares shares_of(const std::vector<Ticket>& tickets, double samples_of_all) {
  Shares shares;
  for (const auto& ticket : tickets) shares.brought += ticket.samples;
  for (const auto& ticket : tickets) {
    const double lacks = samples_of_all - ticket.seen;
    shares.each.push_back(ticket.samples > 0 ? ticket.samples / (shares.brought + lacks) : 0);
    // What each gives up, and not what is left of one: so it is zero to the bit if nobody lacks any.
    if (lacks > 0) shares.stays += shares.each.back() * lacks / shares.brought;
  }
  return shares;
}

}  // namespace

Update Model::learn(const at::Tensor& loss, double samples) {
  auto& here = state();
  return here.step({gradients_by(loss, here.bound), {}}, samples);
}

Update Model::learn_by(const at::Tensor& loss, const std::vector<detail::NamedTensor>& tensors, double samples) {
  const auto unique = without_doubles(tensors);
  return state().step({gradients_by(loss, unique), buffers_of(unique)}, samples);
}

Update Model::step(double samples) {
  auto& here = state();
  return here.step({gradients_of(here.bound), {}}, samples);
}

Update Model::step_by(const std::vector<detail::NamedTensor>& tensors, double samples) {
  const auto unique = without_doubles(tensors);
  return state().step({gradients_of(unique), buffers_of(unique)}, samples);
}

Update Model::step(std::vector<at::Tensor> gradients, double samples) {
  return state().step({std::move(gradients), {}}, samples);
}

Update Model::State::step(Given given, double samples) {
  FARAD_CHECK(std::isfinite(samples) && samples >= 0, "[shared] a step by ", samples, " samples");
  be_worker("step");
  stepper->check(given.gradients, given.buffers);
  stepper->drop_own(given.buffers);
  switch (policy()) {
    case Policy::AllReduced:
      return step_with_all(given, samples);
    case Policy::Managed:
      return submit(given, samples);
    case Policy::Averaged: {
      auto update = step_own(given, samples);
      const auto every = static_cast<uint64_t>(options.average_every);
      if (every > 0 && my_seat().pending.load() >= every) update.version = average();
      return update;
    }
    default:
      return step_alone(given);
  }
}

// --- Locked and Hogwild ---

Update Model::State::step_alone(const Given& given) {
  Attempt attempt(my_seat());
  const uint64_t read = version_read;
  const auto update = [&](const Writer::Done& done) {
    return Update{static_cast<int>(seat), done.sequence, read, done.version, {}};
  };
  const auto& gradients = given.gradients;
  const auto change = [&] {
    stepper->step(gradients, header().books.rate.load());
    stepper->put(given.buffers);
  };
  Writer::Work work{change, {}, attempt.sequence(), read};
  Writer::Done done;
  if (policy() == Policy::Locked) {
    if (options.observer) work.observe = [&](const Writer::Done& made) { options.observer(update(made), gradients); };
    writer->locked(work, deadline(), done).raise();
    attempt.succeeded();
  } else {
    work.observe = [&](const Writer::Done& made) {
      attempt.succeeded();  // It cannot be undone any more.
      if (options.observer) options.observer(update(made), gradients);
    };
    done = writer->unlocked(work);
  }
  if (!pulls) version_read = done.version;  // What it computes next is from what it sees now.
  return update(done);
}

// --- What is made of several ---

void Model::State::observe_together(Writer::Work& work, const std::vector<Ticket>& tickets,
                                    const std::shared_ptr<std::vector<at::Tensor>>& gradients) {
  if (!options.observer) return;
  work.observe = [this, tickets, gradients](const Writer::Done& done) {
    Update update{static_cast<int>(seat), 0, done.version - 1, done.version, {}};
    for (const auto& one : tickets) {
      update.version_read = std::min(update.version_read, one.version_read);
      update.contributions.push_back({static_cast<int>(one.seat), one.sequence, one.version_read, one.samples});
    }
    options.observer(update, *gradients);
  };
}

Writer::Work Model::State::by_mean(const std::vector<Ticket>& tickets) {
  const auto gradients = std::make_shared<std::vector<at::Tensor>>(slots->mean(tickets));
  const auto change = [this, gradients, buffers = slots->mean_of_buffers(tickets)] {
    stepper->step(*gradients, header().books.rate.load());
    stepper->put(buffers);
  };
  Writer::Work work{change, {}, 0, 0};
  observe_together(work, tickets, gradients);
  return work;
}

Update Model::State::step_with_all(const Given& given, double samples) {
  reserve_slots();
  Attempt attempt(my_seat());
  const Ticket mine{seat, 0, attempt.sequence(), version_read, 1, samples};
  uint64_t version = 0;
  const auto ending = [this](const std::vector<Ticket>& tickets) { return by_mean(tickets); };
  rounds->meet(mine, together(given), ending, deadline(), version).raise();
  attempt.succeeded();
  if (!pulls) version_read = version;
  return {static_cast<int>(seat), mine.sequence, mine.version_read, version, {}};
}

// --- Managed ---

Update Model::State::submit(const Given& given, double samples) {
  reserve_slots();
  Attempt attempt(my_seat());
  const Ticket mine{seat, 0, attempt.sequence(), version_read, 1, samples};
  queue->submit(mine, together(given), [this](const auto& tickets) { return by_mean(tickets); }, deadline()).raise();
  attempt.succeeded();
  if (!pulls) version_read = header().books.version.load();
  return {static_cast<int>(seat), mine.sequence, mine.version_read, 0, {}};
}

size_t Model::manage(std::chrono::milliseconds wait) {
  auto& here = state();
  here.must_be(Policy::Managed, "only Policy::Managed has a manager");
  here.be_worker("manage");
  size_t taken = 0;
  const auto ending = [&](const std::vector<Ticket>& tickets) { return here.by_mean(tickets); };
  const auto now = base::Clock::now();
  here.queue->serve(ending, wait.count() > 0 ? base::deadline_after(now, wait) : now, taken).raise();
  return taken;
}

void Model::settle() {
  auto& here = state();
  here.must_be(Policy::Managed, "only under Policy::Managed gradients wait to be applied");
  here.be_worker("settle");
  here.queue->settle([&](const auto& tickets) { return here.by_mean(tickets); }, here.deadline()).raise();
}

// --- Averaged ---

Update Model::State::step_own(const Given& given, double samples) {
  Attempt attempt(my_seat());
  stepper->step(given.gradients, header().books.rate.load());
  stepper->put(given.buffers);
  samples_of_own += samples;
  last_sequence = attempt.sequence();
  const Update update{static_cast<int>(seat), last_sequence, version_read, version_read, {}};
  my_seat().pending.fetch_add(1);
  attempt.succeeded();
  if (options.observer) options.observer(update, given.gradients);
  return update;
}

Writer::Work Model::State::by_average(const std::vector<Ticket>& tickets) {
  const auto shares = shares_of(tickets, header().books.samples.load());
  const auto values = std::make_shared<std::vector<at::Tensor>>(slots->sum(tickets, shares.each));
  Writer::Work work;
  work.change = [this, values, shares] {
    const c10::NoGradGuard no_grad;
    auto& samples = header().books.samples;
    samples.store(samples.load() + shares.brought);
    for (size_t i = 0; i < values->size(); ++i) {
      const auto& place = layout.places()[i];
      const auto& brought = (*values)[i];
      const auto there = Segment::view(segment, place.offset, place);
      if (brought.defined() && shares.stays == 0) {
        there.copy_(brought);
      } else if (brought.defined() && there.is_floating_point()) {
        there.mul_(shares.stays).add_(brought);
      }  // A whole number of a copy that was away is the older one, and of two there is no mean.
      if (place.average == 0) continue;
      Segment::view(segment, place.average, place)
          .mul_(layout.moving_average())
          .add_(there, 1 - layout.moving_average());
    }
  };
  observe_together(work, tickets, std::make_shared<std::vector<at::Tensor>>());
  return work;
}

void Model::State::note_what_is_in() {
  rounds->leave_last(deadline()).raise();
  const auto last = std::exchange(brought, {});
  if (last.sequence == 0 || header().books.tallies[seat].last.load() < last.sequence) return;
  my_seat().pending.fetch_sub(last.updates);
  samples_of_own -= last.samples;
}

uint64_t Model::average() {
  auto& here = state();
  here.must_be(Policy::Averaged, "only under Policy::Averaged processes have copies to average");
  here.be_worker("average");
  return here.average();
}

uint64_t Model::State::average() {
  reserve_slots();
  note_what_is_in();
  brought = {seat, 0, last_sequence, version_read, my_seat().pending.load(), samples_of_own, samples_seen};
  uint64_t version = 0;
  const auto ending = [this](const std::vector<Ticket>& tickets) { return by_average(tickets); };
  rounds->meet(brought, views(), ending, deadline(), version).raise();
  renew_own();
  return version;
}

// --- Checkpoints ---

void Model::save(const std::string& directory) {
  auto& here = state();
  Image image{std::vector<char>(here.layout.bytes()), 0, lr()};
  const auto seen = here.copy({{0, image.values.size(), image.values.data()}});
  if (seen.torn) throw Error("[shared] checkpoint " + directory + ": other processes step all the time; try again");
  image.version = seen.version;
  save_image(directory, here.layout, here.settings, image).raise();
}

void Model::load(const std::string& directory) {
  auto& here = state();
  here.may_change("load");
  Image image;
  load_image(directory, here.layout, here.settings, image).raise();
  const auto put = [&] {
    std::memcpy(here.segment->values(), image.values.data(), image.values.size());
    here.header().books.rate.store(image.rate);
  };
  here.writer->replace(put, image.version, here.deadline()).raise();
  here.version_read = image.version;
  if (here.own) here.renew_own();
}

}  // namespace farad::shared
