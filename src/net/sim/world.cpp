#include "net/sim/world.h"

#include <c10/util/Exception.h>

namespace farad::net::sim {

World::World(uint64_t seed, const Faults& faults, std::chrono::nanoseconds give_up_after)
    : seed_(seed),
      buffers_(wire::BufferPool::make(size_t{64} << 20)),
      scheduler_(seed, give_up_after),
      network_(scheduler_, faults) {}

void World::run(std::function<void()> first) { scheduler_.run(std::move(first)); }

std::unique_ptr<base::Thread> World::start_worker(base::Rank rank, std::function<void()> run) {
  const Process process = scheduler_.make_process();
  processes_[rank] = process;
  return scheduler_.start_process(process, "worker" + std::to_string(rank.value), std::move(run));
}

Process World::process_of(base::Rank rank) const {
  auto it = processes_.find(rank);
  TORCH_CHECK(it != processes_.end(), "[sim] rank ", rank.value,
              " has no process of its own; start it with World::start_worker");
  return it->second;
}

void World::crash(base::Rank rank, Death death) {
  const Process process = process_of(rank);
  network_.crash(rank, process, death);
  scheduler_.kill(process);
}

void World::stop(base::Rank rank) {
  scheduler_.freeze(process_of(rank));
  network_.reconsider_silence();
}

void World::resume(base::Rank rank) {
  scheduler_.thaw(process_of(rank));
  network_.reconsider_silence();
}

void World::partition(std::set<base::Rank> here, std::set<base::Rank> there, std::chrono::nanoseconds span) {
  const uint64_t cut = network_.cut(std::move(here), std::move(there));
  after(span, [this, cut] { network_.heal(cut); });
}

void World::break_connection(base::Rank a, base::Rank b) { network_.break_connection(a, b); }

void World::slow_down(base::Rank a, base::Rank b, double factor) { network_.slow_down(a, b, factor); }

void World::after(std::chrono::nanoseconds span, std::function<void()> event) {
  scheduler_.at(scheduler_.now() + span, std::move(event));
}

}  // namespace farad::net::sim
