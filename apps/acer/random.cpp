#include "acer/random.h"

#include <cmath>
#include <numbers>

namespace farad::acer {
namespace {

/// A bijection whose output bits each depend on all input bits (the finaliser of SplitMix64).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t golden = 0x9e3779b97f4a7c15;

}  // namespace

Random::Random(uint64_t seed, uint64_t stream) : state_{mixed(mixed(seed + golden) ^ (stream * golden)), 0} {}

uint64_t Random::next() {
  // Mixed twice with the key in between: streams are not shifts of one another, as they would be if it were added once.
  return mixed(mixed(++state_.count * golden) ^ state_.key);
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

int64_t Random::poisson(double mean) {
  const double floor = std::exp(-mean);
  int64_t count = 0;
  for (double product = uniform(); product > floor; product *= uniform()) ++count;
  return count;
}

}  // namespace farad::acer
