#include "suites/rpc_twins.h"

namespace farad::test {
namespace {

std::string twin() { return "the other"; }

struct Speaker {
  static std::string speak(Worker& from, const Peer& to) {
    return from.rpc_sync<[] { return std::string("the other"); }>(to);
  }
};

}  // namespace

std::string call_other_twin(Worker& from, const Peer& to) { return from.rpc_sync<twin>(to); }
std::string call_other_twin_lambda(Worker& from, const Peer& to) { return Speaker::speak(from, to); }

}  // namespace farad::test
