#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "suites/workers.h"

namespace farad::test {

/// What every transport promises (src/net/transport.h), checked over Fabric. A backend is instantiated by its name.
/// Workers live in this process; what needs a death of its own is tested in tests/process/fabric.
class TransportSuite : public testing::TestWithParam<std::string> {
 protected:
  using Test = std::function<void(Workers&)>;

  /// Runs `test` with that many workers; in simulation once for each of a few seeds, each inside a world of its own.
  void with_workers(int size, const Test& test) { with_workers(size, {}, test); }
  void with_workers(int size, const Workers::Tweak& tweak, const Test& test);
};

}  // namespace farad::test
