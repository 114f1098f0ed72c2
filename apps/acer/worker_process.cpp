#include "acer/worker_process.h"

#include <farad/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <span>

#include "acer/actor_learner.h"
#include "acer/checkpoint.h"
#include "acer/faulty_parameters.h"
#include "acer/schedule.h"

namespace farad::acer {
namespace {

using shared::Policy;

/// The number of the last checkpoint that workers are to save their parts of. Where they meet, all of them have to stop
/// at the same version, since none gets any further alone: it follows from the version, which is the same for all of
/// them.
int64_t checkpoint_asked_for(const Settings& settings, const Board& board, const shared::Model& model) {
  if (!workers_meet(settings)) return board.checkpoint;
  const uint64_t every = versions_between_checkpoints(settings);
  return every == 0 ? 0 : static_cast<int64_t>(model.version() / every);
}

/// What it has sent off, or has in a copy of its own, is in the model from then on.
void settle(shared::Model& model) {
  if (model.policy() == Policy::Managed) model.settle();
  if (model.policy() == Policy::Averaged) model.average();
}

void save_worker(const ActorLearner& learner, const std::string& parts, int worker) {
  const auto path = Checkpoint::worker(parts, worker);
  std::ofstream out(path, std::ios::binary);
  learner.save(out);
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

/// A worker that was killed when the run ended has written no part.
void load_worker(ActorLearner& learner, const Settings& settings, const std::string& parts, int worker) {
  const auto path = Checkpoint::worker(parts, worker);
  if (std::ifstream in(path, std::ios::binary); in) return learner.load(in);
  if (settings.workers == 1 || settings.policy == Policy::AllReduced) {
    throw Error("[acer] " + path +
                " is missing: its worker was killed before it could write it, and without it the run does not go on to "
                "the bit; begin anew, without --resume");
  }
  std::fprintf(stderr, "farad acer: %s is missing; worker %d begins anew, with an empty replay\n", path.c_str(),
               worker);
}

/// Whether each worker has made its share of the steps, this one included if it has.
bool all_have_finished(const Settings& settings, Board& board, Tally& tally) {
  if (tally.steps >= settings.steps / settings.workers) tally.finished = true;
  const auto workers = std::span(board.tallies).first(static_cast<size_t>(settings.workers));
  return std::ranges::all_of(workers, [](const Tally& each) { return each.finished.load(); });
}

}  // namespace

bool is_done(const Settings& settings, Board& board, Tally& tally, uint64_t version) {
  if (settings.policy != Policy::AllReduced || settings.workers == 1)
    return board.stop || board.steps >= settings.steps;
  // Whoever says which version is the last has not taken part in the round that is under way, so nobody is further than
  // that; others may have, so it is the version that the round makes. They see it before they begin another, because
  // this one is not over without the one that said it. Anybody who sees that all have finished says it: the one that
  // was the last to may be killed before it can.
  uint64_t unknown = 0;
  if (board.stop || all_have_finished(settings, board, tally))
    board.last_version.compare_exchange_strong(unknown, version + 1);
  const uint64_t end = board.last_version;
  return end != 0 && version >= end;
}

bool is_logged(const Settings& settings) {
  return (settings.policy == Policy::Locked || settings.policy == Policy::Hogwild) && !settings.resume;
}

bool workers_meet(const Settings& settings) {
  return settings.policy == Policy::AllReduced || settings.policy == Policy::Averaged;
}

uint64_t versions_between_checkpoints(const Settings& settings) {
  if (settings.checkpoint_every == 0) return 0;
  const double windows = static_cast<double>(settings.checkpoint_every) / static_cast<double>(settings.window);
  const int each = settings.policy == Policy::Averaged ? shared::Options().average_every : 1;
  const double versions = windows * (1 + settings.replay_ratio) / (each * settings.workers);
  return static_cast<uint64_t>(std::max<int64_t>(std::llround(versions), 1));
}

void work(const Settings& settings, SharedModel& shared, Board& board, int worker, bool goes_on) {
  auto& tally = board.tallies[static_cast<size_t>(worker)];
  const int life = tally.life;
  std::ofstream log;
  if (is_logged(settings)) log.open(log_of(settings.out, worker, life), std::ios::binary);
  SharedParameters parameters(shared, log.is_open() ? &log : nullptr);
  FaultyParameters seen(parameters, settings);
  ActorLearner learner(settings, seen, tally, worker, life);
  const Checkpoint checkpoint(settings.out);
  if (goes_on) load_worker(learner, settings, checkpoint.last(), worker);
  while (!is_done(settings, board, tally, shared.model.version())) {
    const auto before = board.changes.count();
    const int64_t asked = checkpoint_asked_for(settings, board, shared.model);
    if (asked <= board.resumed) {
      board.steps.fetch_add(learner.update());
    } else if (tally.saved < asked) {
      if (settings.policy == Policy::Managed) shared.model.settle();
      save_worker(learner, checkpoint.next(), worker);
      tally.saved = asked;
      board.changes.announce();
    } else {
      board.changes.wait(before, std::chrono::seconds(1));
    }
  }
  settle(shared.model);
  save_worker(learner, checkpoint.at_end(), worker);
  shared.model.detach();  // Nobody waits for this one any more.
}

void manage(SharedModel& shared, const Board& board) {
  while (!board.over) shared.model.manage(std::chrono::milliseconds(20));
}

}  // namespace farad::acer
