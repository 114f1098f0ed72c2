#include "process/shared/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

namespace farad::test {
namespace {

constexpr size_t bytes = 64 + Ledger::most_lines * sizeof(Ledger::Line);

}  // namespace

Ledger::Ledger() : own_(::memfd_create("ledger", MFD_CLOEXEC)) {
  if (own_ < 0 || ::ftruncate(own_, bytes) != 0) throw std::runtime_error("no memory for a ledger");
  place_ = {::getpid(), own_};
  map();
}

Ledger::Ledger(Place place)
    : place_(place),
      own_(::open(("/proc/" + std::to_string(place.pid) + "/fd/" + std::to_string(place.descriptor)).c_str(),
                  O_RDWR | O_CLOEXEC)) {
  if (own_ < 0) throw std::runtime_error("the ledger cannot be opened");
  map();
}

void Ledger::map() {
  memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own_, 0);
  if (memory_ == MAP_FAILED) throw std::runtime_error("the ledger cannot be mapped");
}

Ledger::~Ledger() {
  ::munmap(memory_, bytes);
  ::close(own_);
}

void Ledger::note(const shared::Update& update) {
  if (update.sequence != 0 && update.contributions.empty() && update.version == update.version_read) return;
  auto& line = lines()[update.version % most_lines];
  line.version.store(0);
  line.count = 0;
  const auto add = [&](const Part& part) {
    if (line.count < most_parts) line.parts[line.count] = part;
    ++line.count;
  };
  for (const auto& one : update.contributions) add({one.worker, one.sequence, one.version_read, one.samples});
  if (update.contributions.empty()) {
    add({update.worker, update.sequence, update.version_read, samples_of(update.worker, update.sequence)});
  }
  line.version.store(update.version);
}

void Ledger::look_for(const shared::Update& update) const {
  const auto& there = line(update.version);
  const std::span parts(there.parts, std::min(there.count, most_parts));
  const bool found = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.worker == update.worker && part.sequence == update.sequence;
  });
  if (there.version.load() != update.version || !found) missing().fetch_add(1);
}

double gradient_of(int64_t worker, uint64_t sequence) {
  return -1.0 - static_cast<double>(shared::stream_seed(static_cast<uint64_t>(worker), sequence) % 61);
}

double samples_of(int64_t worker, uint64_t sequence) {
  return shared::stream_seed(static_cast<uint64_t>(worker) + 1'000, sequence) % 2 == 0 ? 1 : 3;
}

}  // namespace farad::test
