#include "explore/explorer.h"

#include <random>
#include <unordered_set>

namespace farad::autograd::explore {
namespace {

struct PairHash {
  size_t operator()(const std::pair<uint64_t, uint64_t>& hash) const { return hash.first; }
};

/// A state on the way we are on, and what is left to try there.
struct Frame {
  World world;
  std::vector<World::Step> steps;
  size_t next = 0;
};

}  // namespace

Findings try_all(const World& start, uint64_t limit) {
  Findings findings;
  std::unordered_set<std::pair<uint64_t, uint64_t>, PairHash> seen;
  std::vector<Frame> way;
  const auto enter = [&](World&& world) {
    if (!seen.insert(world.hash()).second) return;
    ++findings.states;
    size_t dangers_from = 0;
    auto steps = world.steps(dangers_from);
    findings.violation = world.violation();
    if (findings.violation.empty() && dangers_from == 0) {
      ++findings.ends;
      findings.violation = world.judge();
    }
    way.push_back({std::move(world), std::move(steps)});
  };
  enter(World(start));
  while (!way.empty() && findings.violation.empty() && findings.states < limit) {
    auto& here = way.back();
    if (here.next == here.steps.size()) {
      way.pop_back();
      continue;
    }
    const auto step = here.steps[here.next++];
    World next = here.world;
    next.take(step);
    ++findings.steps;
    enter(std::move(next));
  }
  findings.complete = way.empty();
  for (const auto& frame : way) {
    if (frame.next > 0) findings.way.push_back(frame.world.show(frame.steps[frame.next - 1]));
  }
  return findings;
}

Findings try_one(const World& start, uint32_t seed) {
  Findings findings;
  std::mt19937 random(seed);
  World world = start;
  for (;;) {
    size_t dangers_from = 0;
    const auto steps = world.steps(dangers_from);
    const bool danger = dangers_from < steps.size() && random() % 100 == 0;
    if (dangers_from == 0 && !danger) break;
    const auto step =
        danger ? steps[dangers_from + random() % (steps.size() - dangers_from)] : steps[random() % dangers_from];
    findings.way.push_back(world.show(step));
    world.take(step);
    ++findings.steps;
    if (!world.violation().empty()) break;
    if (findings.steps > 1'000'000) {
      findings.violation = "goes on for ever";
      return findings;
    }
  }
  findings.violation = world.judge();
  findings.complete = true;
  return findings;
}

std::string show(const Findings& findings) {
  std::string text = findings.violation + "\n";
  for (const auto& step : findings.way) text += "  " + step + "\n";
  return text + std::to_string(findings.states) + " states, " + std::to_string(findings.steps) + " steps, " +
         std::to_string(findings.ends) + " ends" + (findings.complete ? "" : ", not complete");
}

}  // namespace farad::autograd::explore
