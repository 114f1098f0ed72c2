#include "collectives/link.h"

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/children.h"
#include "process/command/command.h"
#include "process/machines/machines.h"

namespace farad::bench {
namespace {

constexpr size_t bytes = 64 << 20;
constexpr const char* count = "3";

using Words = std::vector<std::string>;

/// What went wrong, or nothing. The burst is what the kernel asks for at this rate; the queue holds 4 ms.
std::string limit(const Words& inside) {
  Words line = inside;
  for (const char* word :
       {"tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", "1gbit", "burst", "256k", "limit", "1m"}) {
    line.emplace_back(word);
  }
  test::Command command(line);
  return command.finish() == 0 ? "" : "tc: " + (command.err().empty() ? "it failed" : command.err());
}

}  // namespace

nlohmann::json measure_link() {
  const test::Machines machines;
  std::string trouble = machines.trouble();
  if (trouble.empty()) trouble = limit(machines.on_first({}));
  if (trouble.empty()) trouble = limit(machines.on_second({}));
  if (!trouble.empty()) return {{"skipped", trouble}};

  // Members on one cable of their own prove to each other that they know the same word, whatever it is.
  ::setenv("FARAD_SECRET", "bench", 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string meeting = "tcp://" + std::string(test::Machines::first_address) + ":29500";
  Children children;
  for (const int rank : {0, 1}) {
    const Words role{self, "reduce", meeting, "tcp", "2", std::to_string(rank), std::to_string(bytes), count};
    children.start(rank == 0 ? machines.on_first(role) : machines.on_second(role), core_for(Placement::TwoCores, rank));
  }
  const auto time = nlohmann::json::parse(children.output(120));
  ::unsetenv("FARAD_SECRET");
  return {{"bytes", bytes}, {"bits per second", 1e9}, {"time", time}};
}

}  // namespace farad::bench
