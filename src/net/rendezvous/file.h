#pragma once

#include <memory>

#include "net/rendezvous/place.h"
#include "net/rendezvous/rendezvous.h"

namespace farad::net {

/// Workers of one user that can open the same file meet there; no port, no host, no worker that the others depend on.
std::unique_ptr<Rendezvous> make_file_rendezvous(Place place, base::Runtime& runtime);

}  // namespace farad::net
