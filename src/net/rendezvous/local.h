#pragma once

#include <memory>

#include "net/rendezvous/place.h"
#include "net/rendezvous/rendezvous.h"

namespace farad::net {

/// Workers of one process, and of one Runtime, meet under a name. Waits on the Runtime only, so in a simulated one the
/// seed decides and nothing else does.
std::unique_ptr<Rendezvous> make_local_rendezvous(Place place, base::Runtime& runtime);

}  // namespace farad::net
