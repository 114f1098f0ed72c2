#pragma once

#include <cstdint>

#include "shared/segment.h"

namespace farad::shared {

/// Notes which update made a version: whose it was, its sequence, and what it was computed from. Anybody may look
/// meanwhile.
void write_down(Header& header, const Ticket& update, uint64_t version);
/// That update. False if it is not there any more, or just being written over.
bool look_up(const Header& header, uint64_t version, Ticket& update);

}  // namespace farad::shared
