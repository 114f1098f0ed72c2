#pragma once

#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "net/shm/link.h"
#include "net/trust/secret.h"

namespace farad::net {

/// What two workers of one machine say to each other over a unix socket before they share memory. Only the same user
/// is spoken to, and only who knows the secret.
struct ShmGreeting {
  base::Rank rank;
  uint64_t birth = 0;     ///< of the caller's process
  uint64_t accepted = 0;  ///< how many connections of the callee's the caller has accepted so far
  uint32_t slot = 0;      ///< where the caller wants to be rung for this connection
  std::string address;    ///< where the caller itself listens
};

enum class ShmWelcome : uint32_t {
  Yes,
  Crossed,  ///< We are connecting to you ourselves, or just did: wait for that one.
};

/// How a worker is rung: its bell page and eventfd, to be passed on.
struct ShmBellFds {
  int page = -1;
  int eventfd = -1;
};

/// An abstract unix socket with a name nobody can guess, which needs no file and leaves none.
base::Status listen_on(const std::string& address, base::Fd& out);
std::string unguessable_address();
/// PeerLost if nobody listens there.
base::Status connect_to(const std::string& address, base::Fd& out);

/// The connector's part: on Yes the link is attached and its socket set, and `birth` is the acceptor's.
base::Status greet(base::Fd socket, const Secret&, const ShmGreeting& self, ShmBellFds own, ShmLink& link,
                   ShmWelcome& welcome, uint64_t& birth, base::TimePoint deadline);

/// The acceptor's part in two steps, so that it can decide in between.
base::Status hear_greeting(int socket, const Secret&, ShmGreeting& caller, std::unique_ptr<ShmLink>& link,
                           base::TimePoint deadline);
base::Status answer_greeting(int socket, ShmWelcome, ShmBellFds own, uint32_t slot, uint64_t birth,
                             base::TimePoint deadline);

}  // namespace farad::net
