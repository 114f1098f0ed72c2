#include "sim/simulation.h"

#include <c10/util/ScopeExit.h>
#include <farad/error.h>

#include <utility>

#include "worker_core.h"

namespace farad::test {

using namespace std::chrono_literals;
using base::Rank;

Simulation::Simulation(uint64_t seed, Options options)
    : world_(seed, options.faults), options_(std::move(options)), places_(static_cast<size_t>(options_.size)) {}

void Simulation::run(Program program, std::function<void()> conduct) {
  program_ = std::move(program);
  world_.run([&] {
    for (int rank = 0; rank < size(); ++rank) start(rank);
    if (conduct) conduct();
    for (auto& place : places_) place.process.reset();  // Joins.
  });
}

void Simulation::start(int rank) {
  Place& place = places_[rank];
  place.process.reset();
  place.alive = true;
  const bool again = place.life++ > 0;
  place.process = world_.start_worker(Rank(static_cast<uint16_t>(rank)), [this, rank, again] { live(rank, again); });
}

void Simulation::live(int rank, bool again) {
  const auto end = c10::make_scope_exit([this, rank, life = places_[rank].life] {
    if (places_[rank].life == life) places_[rank].alive = false;
  });
  WorkerOptions options = options_.worker;
  options.rank = rank;
  options.size = size();
  options.rendezvous = "local://simulation";
  try {
    Worker worker = detail::WorkerCore::join_in(world_, options);
    {
      detail::WorkerCore::Scope scope(detail::WorkerCore::of(worker));
      program_(worker);
    }
    try {
      worker.close();
    } catch (const PeerLost&) {
    }
  } catch (const Timeout&) {
    if (!again) throw;  // Who comes back may find that the others have gone.
  }
}

void Simulation::pass(std::chrono::nanoseconds span) {
  auto& runtime = world_.runtime();
  runtime.make_parker()->park(runtime.now() + span);
}

bool Simulation::eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 3'000; ++i) {
    if (done()) return true;
    pass(100ms);
  }
  return done();
}

void Simulation::crash(int rank, net::sim::Death death) {
  places_[rank].alive = false;
  world_.crash(Rank(static_cast<uint16_t>(rank)), death);
}

void Simulation::restart(int rank) { start(rank); }

}  // namespace farad::test
