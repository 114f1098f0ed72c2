#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "base/runtime.h"
#include "net/rendezvous/codec.h"
#include "net/rendezvous/rendezvous.h"
#include "net/rendezvous/roster.h"
#include "net/trust/handshake.h"

namespace farad::net {

inline constexpr std::string_view rendezvous_purpose = "rendezvous";

/// Rank 0's side of a tcp:// meeting: one thread that serves all who come, for as long as it lives. Nobody can make it
/// wait for him: a stranger that is silent, slow or talks nonsense costs a descriptor for a few seconds and nothing
/// else.
///
/// A member stays connected while it lives, which is how the host knows that it does.
class TcpHost {
 public:
  TcpHost(base::Fd listener, const JoinRequest& self, base::Runtime& runtime);
  /// Tells those who wait that the meeting is over.
  ~TcpHost();

 private:
  enum class Stage {
    Greeting,  // shakes hands
    Asking,    // has proved to belong to us; what it wants is still arriving
    Held,      // a rival sits on its seat, and may be about to end
    Seated,    // waits for the others
    Settled,   // has the members
    Leaving,   // is sent a last word
  };
  struct Guest;
  using Guests = std::list<Guest>;

  void run();
  base::TimePoint next_event() const;
  void wait_for_events();
  void accept_all();
  void make_room();

  void receive(Guest&);
  void on_bytes(Guest&, std::string_view bytes);
  void on_ask(Guest&);
  void seat(Guest&);
  void on_time_up(Guest&);
  void fail(const base::Status& why);
  void settle();
  void farewell();

  void say(Guest&, const meeting::Answer&);
  void flush(Guest&);
  void refuse(Guest&, const base::Status& why);
  void turn_away(Guest&, const base::Status& why);
  void drop(Guest&);
  base::Status time_up() const;
  bool is_host(const Guest&) const;

  // Constant after construction.
  const JoinRequest self_;
  base::Runtime& runtime_;
  const base::Log log_;
  const base::Fd listener_;
  const base::Fd wake_;
  std::atomic<bool> stop_{false};

  // Of the host's thread.
  Roster roster_;
  Guests guests_;  // In order of coming.
  base::TimePoint listen_again_;
  base::TimePoint failed_at_ = base::never;
  std::string turned_away_;  // Why the last stranger was.

  std::unique_ptr<base::Thread> thread_;  // Last, for it uses all the others.
};

}  // namespace farad::net
