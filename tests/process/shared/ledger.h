#pragma once

#include <farad/shared.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farad::test {

/// What each update of a model is made of, as observers are told in processes that may be killed at any instant. In
/// memory that all of them have; an update that was undone is written over by the next one of its version.
class Ledger {
 public:
  struct Part {
    int64_t worker = 0;
    uint64_t sequence = 0, version_read = 0;
    double samples = 0;
  };
  static constexpr uint64_t most_parts = 3;
  struct Line {
    std::atomic<uint64_t> version;
    uint64_t count;  ///< may be more than there is room for
    Part parts[most_parts];
  };
  /// So many of the last ones are there.
  static constexpr uint64_t most_lines = uint64_t{1} << 19;

  /// Another process finds it by these two.
  struct Place {
    int pid = 0, descriptor = -1;
  };
  Ledger();
  explicit Ledger(Place place);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Place place() const { return place_; }

  /// By observers.
  void note(const shared::Update& update);
  const Line& line(uint64_t version) const { return lines()[version % most_lines]; }
  /// Updates that a worker was told of and did not find here.
  std::atomic<uint64_t>& missing() const { return *static_cast<std::atomic<uint64_t>*>(memory_); }
  /// By a worker that is told of its own.
  void look_for(const shared::Update& update) const;

 private:
  void map();
  Line* lines() const { return reinterpret_cast<Line*>(static_cast<char*>(memory_) + 64); }

  Place place_;
  int own_ = -1;
  void* memory_ = nullptr;
};

/// What a worker brings as its how-manieth: of another size each time, in numbers of which sums are exact.
double gradient_of(int64_t worker, uint64_t sequence);
double samples_of(int64_t worker, uint64_t sequence);

}  // namespace farad::test
