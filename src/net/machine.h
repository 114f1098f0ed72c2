#pragma once

#include <cstdint>
#include <string>

namespace farad::net {

/// Equal for two processes that can share memory with each other: the running kernel, the network namespace (in which
/// unix sockets are found) and the user.
std::string machine_identity();

/// A number that no other start of any process has.
uint64_t new_birth();

}  // namespace farad::net
