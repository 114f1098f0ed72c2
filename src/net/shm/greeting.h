#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "net/shm/link.h"
#include "net/trust/handshake.h"
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

/// The connector's part, in steps that never wait: many can be under way in one thread, and who does not answer holds
/// up nobody else.
class ShmCaller {
 public:
  /// What is said in it must stay where it is: `link` is attached when the answer is Yes.
  ShmCaller(base::Fd socket, const Secret&, ShmGreeting self, ShmBellFds own, ShmLink& link);

  /// To be called at once, and whenever the socket has something to read, until `answered`.
  base::Status step(bool& answered);
  int socket() const { return socket_.get(); }

  // Once answered.
  ShmWelcome welcome{};
  uint64_t birth = 0;  ///< the acceptor's

 private:
  base::Fd socket_;  // The link's, after a Yes.
  Handshake handshake_;
  const ShmGreeting self_;
  const ShmBellFds own_;
  ShmLink& link_;
  bool greeted_ = false;
};

/// The acceptor's part, likewise, up to where it has to decide.
class ShmHearing {
 public:
  ShmHearing(base::Fd socket, const Secret&);

  /// To be called at once, and whenever the socket has something to read, until `heard`.
  base::Status step(bool& heard);

  base::Fd socket;
  // Once heard.
  ShmGreeting caller;
  std::unique_ptr<ShmLink> link;

 private:
  Handshake handshake_;
};

/// The acceptor's last word. Does not wait either.
base::Status answer_greeting(int socket, ShmWelcome, ShmBellFds own, uint32_t slot, uint64_t birth);

}  // namespace farad::net
