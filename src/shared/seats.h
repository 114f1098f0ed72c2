#pragma once

#include <chrono>
#include <cstdint>

#include "base/status.h"
#include "shared/segment.h"

namespace farad::shared {

/// How often one that waits for another process looks whether that has ended: nobody is told of it.
inline constexpr std::chrono::milliseconds look_around{20};

/// Takes a seat that is free or whose process has ended; `no_seat` if there is none. The caller has the lock.
base::Status take_seat(Header& header, uint32_t& seat);
/// This process gives its seat back. Any time.
void leave_seat(Header& header, uint32_t seat);
/// Notes that a member of the rounds has ended; the caller has the lock.
void lose(Header& header, uint32_t seat, uint32_t pid);
/// Whether this process sits there: it does not after a fork.
bool sits_there(const Seat& seat);
/// Whether the process that sits there has not ended. False for a free one.
bool is_alive(const Seat& seat);
/// The process that sits there if it has ended without leaving, else 0. The caller has the lock, so that nobody else
/// takes the seat meanwhile; but whoever sits there may leave it at any time.
uint32_t ended_at(const Seat& seat);

}  // namespace farad::shared
