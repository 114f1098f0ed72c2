#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "net/fabric.h"

namespace farad::test {

/// What a worker in a process of its own does, until it is killed or the test's process ends.
enum class Behaviour : uint8_t {
  Echo,    ///< Sends every message back.
  Stream,  ///< Sends messages of tag 0, 1, 2, ... as fast as it can; checks that what it is sent goes up by one too.
  Report,  ///< As Echo; when it has lost rank 0 it tells it so, by a message of tag `i_lost_you`.
};
constexpr uint64_t i_lost_you = 777;

/// Plain bytes, because it travels through a socket: see Nursery.
struct PeerPlan {
  Behaviour behaviour = Behaviour::Echo;
  char transport[8] = {};
  char rendezvous[120] = {};
  int rank = 1;
  int size = 2;
  int lost_after_ms = 3000;
};

net::FabricOptions options_of(const PeerPlan& plan, int rank);

/// Joins and behaves. Ends the process with a message if it hears what it must not.
[[noreturn]] void be_a_peer(const PeerPlan& plan);

/// What both sides stream: sizes from nothing to more than a ring holds, contents that tell one message from another.
wire::Message stream_message(uint64_t tag);
bool is_stream_message(const wire::Message& message);

}  // namespace farad::test
