#include "suites/collectives_suite.h"

namespace farad::test {

INSTANTIATE_TEST_SUITE_P(Each, CollectivesSuite, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace farad::test
