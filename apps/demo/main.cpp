// Three (or more) processes exchange tensors, and the first one tells what that costs.

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <farad/error.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "post_office.h"

namespace farad::demo {
namespace {

using base::Clock;
using base::Rank;

struct Measurement {
  double p50_us;
  double p99_us;
  int rounds;
};

/// As many rounds as fit into a good second, at least eight.
int rounds_for(size_t bytes) { return std::clamp<int>(static_cast<int>((256 << 20) / (bytes + 1024)), 8, 5000); }

Measurement measure(PostOffice& office, Rank rank, size_t bytes) {
  const int rounds = rounds_for(bytes);
  auto tensor = at::rand({static_cast<int64_t>(bytes / sizeof(float))});
  std::vector<double> times;
  for (int i = -rounds / 8; i < rounds; ++i) {
    wire::Message letter;
    letter.tensors = {tensor};
    const auto start = Clock::now();
    auto answer = office.ask(rank, std::move(letter));
    if (i >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    // The first ones warm up, and prove that what comes back is what was sent.
    if (i < 0 && !at::equal(answer.tensors.at(0), tensor)) throw Error("[demo] another tensor came back");
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100], rounds};
}

std::string readable(size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < (1 << 20)) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

void tell(PostOffice& office) {
  const auto members = office.fabric().members();
  std::printf("%zu workers have met:", members.size());
  for (const auto& member : members) std::printf(" %s", member.name.c_str());
  std::printf("\n\nA tensor of float32 goes to another process and comes back, checked:\n\n");
  std::printf("  %-10s %-5s %9s %12s %12s %14s %8s\n", "to", "by", "size", "p50", "p99", "moved", "rounds");
  for (const auto& member : members) {
    if (member.rank == office.fabric().self().rank) continue;
    for (size_t bytes : {size_t{16}, size_t{64} << 10, size_t{1} << 20, size_t{16} << 20}) {
      const auto result = measure(office, member.rank, bytes);
      const double gigabytes = 2.0 * static_cast<double>(bytes) / result.p50_us / 1e3;
      std::printf("  %-10s %-5s %9s %9.1f us %9.1f us %9.2f GB/s %8d\n", member.name.c_str(),
                  std::string(office.fabric().transport_to(member.rank)).c_str(), readable(bytes).c_str(),
                  result.p50_us, result.p99_us, gigabytes, result.rounds);
      std::fflush(stdout);
    }
  }
  std::printf("\nThe times are those of a round trip: there, and back.\n");
}

}  // namespace
}  // namespace farad::demo

int main() {
  try {
    farad::demo::PostOffice office;
    if (office.fabric().self().rank.value == 0) farad::demo::tell(office);
    office.finish();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
