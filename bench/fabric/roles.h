#pragma once

#include "common/program.h"

namespace farad::bench {

/// What a process of this benchmark can be told to be. Each takes the words after its name and writes JSON to standard
/// output if it is the one that measures.
// floors.cpp: what the machine itself needs.
void futex_ping(const Words&);   ///< one process that forks its partner: cores of both
void socket_ping(const Words&);  ///< "unix" or "tcp", cores of both, sizes
void memcpy_warm(const Words&);  ///< sizes

// echo.cpp: a tensor goes to the other worker and comes back.
void echo_client(const Words&);  ///< rendezvous, transport, sizes
void echo_server(const Words&);  ///< rendezvous, transport

// flood.cpp: small messages from several threads at once, and what memory that takes.
void flood_sender(const Words&);    ///< rendezvous, transport
void flood_receiver(const Words&);  ///< rendezvous, transport

}  // namespace farad::bench
