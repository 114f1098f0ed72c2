#pragma once

#include <memory>

#include "net/rendezvous/place.h"
#include "net/rendezvous/rendezvous.h"

namespace farad::net {

/// Rank 0 holds the meeting at host:port, in a thread of its own, and all connect to it, rank 0 too. Others may come
/// before it does. Needs the machine's own clock, because it waits in the kernel.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(Place place, base::Rank self, base::Runtime& runtime);

}  // namespace farad::net
