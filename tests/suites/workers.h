#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/fabric.h"
#include "suites/recorder.h"

namespace farad::test {

/// A group of workers in this process, on one transport, each with a Recorder.
class Workers {
 public:
  using Tweak = std::function<void(net::FabricOptions&)>;

  /// All have joined and drive when this returns. `world` for transport "sim", and inside its run().
  Workers(const std::string& transport, int size, net::sim::World* world, Tweak tweak = {});

  int size() const { return static_cast<int>(places_.size()); }
  net::Fabric& operator[](int rank) { return *places_[rank].fabric; }
  Recorder& heard(int rank) { return *places_[rank].heard; }
  base::Runtime& runtime() { return runtime_; }

  bool wait_until(int rank, std::function<bool(const Recorder&)> done) {
    return heard(rank).wait_until((*this)[rank].driver(), runtime_, std::move(done));
  }
  /// A thread of the group's runtime.
  std::unique_ptr<base::Thread> thread(std::function<void()> run) { return runtime_.start("test", std::move(run)); }

  /// Ends one without close(), as far as that is possible in one process, and keeps what it heard.
  void drop(int rank) { places_[rank].fabric.reset(); }
  /// The same worker joins again, with a fresh Recorder.
  void restart(int rank);

 private:
  struct Place {
    std::unique_ptr<Recorder> heard;  // Outlives the fabric.
    std::unique_ptr<net::Fabric> fabric;
  };
  net::FabricOptions options(int rank) const;
  void join(int rank);

  const std::string transport_;
  net::sim::World* const world_;
  const Tweak tweak_;
  const std::string rendezvous_;
  base::Runtime& runtime_;
  std::vector<Place> places_;
};

/// A message with that tag.
wire::Message tagged(uint64_t tag);
/// A message with that tag and one tensor of that many floats, each of which is the tag.
wire::Message filled(uint64_t tag, int64_t floats);
/// Whether it is what filled() made of its tag.
bool is_filled(const wire::Message& message, int64_t floats);

/// Holds one thread until released by another. What a handler waits for must live as long as messages come: share it.
class Latch {
 public:
  explicit Latch(base::Runtime& runtime) : parker_(runtime.make_parker()) {}
  void wait() {
    while (!open_.load()) parker_->park(base::never);
  }
  void release() {
    open_.store(true);
    parker_->unpark();
  }

 private:
  const std::unique_ptr<base::Parker> parker_;
  std::atomic<bool> open_{false};
};

}  // namespace farad::test
