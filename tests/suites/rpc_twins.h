#pragma once

#include <farad/worker.h>

#include <string>

namespace farad::test {

/// Two files have a function and a lambda of the same printed names. These call the ones of rpc_twins.cpp.
std::string call_other_twin(Worker& from, const Peer& to);
std::string call_other_twin_lambda(Worker& from, const Peer& to);

}  // namespace farad::test
