#include "suites/workers.h"

#include <ATen/ops/full.h>

#include <atomic>

#include "net/sim/world.h"

namespace farad::test {
namespace {

std::string fresh_meeting() {
  static std::atomic<int> next{0};
  return "local://suite-" + std::to_string(next++);
}

}  // namespace

Workers::Workers(const std::string& transport, int size, net::sim::World* world, Tweak tweak)
    : transport_(transport),
      world_(world),
      tweak_(std::move(tweak)),
      rendezvous_(fresh_meeting()),
      runtime_(world ? world->runtime() : base::Runtime::real()),
      places_(static_cast<size_t>(size)) {
  std::vector<std::unique_ptr<base::Thread>> joining;  // join() returns only when all have come.
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    joining.push_back(thread([this, rank, &failures] {
      try {
        join(rank);
      } catch (const std::exception&) {
        failures[rank] = std::current_exception();
      }
    }));
  }
  joining.clear();
  for (auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

net::FabricOptions Workers::options(int rank) const {
  net::FabricOptions options;
  options.rank = rank;
  options.size = size();
  options.rendezvous = rendezvous_;
  options.transport = transport_;
  options.join_timeout = std::chrono::seconds(20);
  options.world = world_;
  if (tweak_) tweak_(options);
  return options;
}

void Workers::join(int rank) {
  places_[rank].heard = std::make_unique<Recorder>();
  places_[rank].fabric = net::Fabric::join(options(rank), *places_[rank].heard);
  places_[rank].fabric->start();
}

void Workers::restart(int rank) {
  drop(rank);
  join(rank);
}

wire::Message tagged(uint64_t tag) {
  wire::Message message;
  message.tag = tag;
  return message;
}

wire::Message filled(uint64_t tag, int64_t floats) {
  wire::Message message = tagged(tag);
  message.tensors.push_back(at::full({floats}, static_cast<double>(tag), at::kFloat));
  return message;
}

bool is_filled(const wire::Message& message, int64_t floats) {
  return message.tensors.size() == 1 && message.tensors[0].dim() == 1 && message.tensors[0].size(0) == floats &&
         message.tensors[0].eq(static_cast<double>(message.tag)).all().item<bool>();
}

}  // namespace farad::test
