#include "suites/transport_suite.h"

#include "net/sim/world.h"
#include "suites/seeds.h"

namespace farad::test {

void TransportSuite::with_workers(int size, const Workers::Tweak& tweak, const Test& test) {
  if (GetParam() != "sim") {
    Workers workers(GetParam(), size, nullptr, tweak);
    return test(workers);
  }
  for (uint64_t seed = 1, last = number_of_seeds(5); seed <= last && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    net::sim::World world(seed);
    world.run([&] {
      Workers workers("sim", size, &world, tweak);
      test(workers);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TransportSuite, testing::Values("local", "sim", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace farad::test
