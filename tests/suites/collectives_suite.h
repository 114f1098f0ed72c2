#pragma once

#include <vector>

#include "suites/collectives_operations.h"
#include "suites/rpc_suite.h"

namespace farad::test {

/// What collectives promise (include/farad/collectives.h), with all members in this process.
class CollectivesSuite : public RpcSuite {
 protected:
  /// Of groups. What is computed does not depend on the transport, so one of them tries all.
  std::vector<int> sizes() const { return GetParam() == "local" ? std::vector{1, 2, 3, 4, 5} : std::vector{2, 3}; }
};

}  // namespace farad::test
