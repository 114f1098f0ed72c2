#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "net/trust/secret.h"

namespace farad::net {

/// The first words on every new connection, whatever it is for: nothing else of a stranger is parsed before they are
/// said. Both sides learn that the other speaks a version they know and came for the same purpose; if they have a
/// Secret, each proves to the other that it knows it without telling it. docs/design/trust.md is the spec.
///
/// Does no I/O: bytes go in by feed() and come out by take_output(). Messages have a fixed size, so a stranger can
/// make it hold no more than `hello_bytes`. Not for several threads at once.
class Handshake {
 public:
  enum class Role { Connector, Acceptor };

  static constexpr uint16_t version = 1;         ///< the newest we speak
  static constexpr uint16_t oldest_version = 1;  ///< and the oldest
  static constexpr size_t purpose_bytes = 24;    ///< longest purpose
  static constexpr size_t hello_bytes = 8 + 2 + 2 + 4 + 32 + purpose_bytes;
  static constexpr size_t proof_bytes = 4 + 32;

  /// `purpose` names the channel ("tcp", "rendezvous", ...): a proof made for one is none for another.
  Handshake(Role role, const Secret& secret, std::string_view purpose);

  /// Bytes to send now, maybe none. After a failure too: they let the other side fail by name, so send them before
  /// the connection is closed.
  std::string take_output();

  /// Takes what has arrived, never beyond its own last byte; `consumed` says how much. Protocol: this is not a
  /// handshake of ours. Denied: it is, but whoever it is does not belong to us. Both are final.
  base::Status feed(std::string_view bytes, size_t& consumed);

  /// How many bytes it needs before it can go on: 0 once it is done or has failed. Whoever reads no more than these
  /// leaves what follows the handshake in the socket.
  size_t wants() const { return expected_ - held_; }

  const std::string& purpose() const { return purpose_; }

  /// Nothing more to read; what take_output() gives must still be sent.
  bool done() const { return step_ == Step::Done; }

 private:
  enum class Step { Hello, Proof, Done, Failed };
  using Hello = std::array<unsigned char, hello_bytes>;
  using Mac = std::array<unsigned char, 32>;

  void expect(Step step, size_t bytes);
  base::Status fail(base::Code code, const std::string& why);
  base::Status on_hello();
  base::Status on_proof();
  base::Status judge_hello() const;
  void send_proof(bool accepted);
  Mac mac(Role prover) const;

  const Role role_;
  const Secret secret_;
  const std::string purpose_;

  Step step_ = Step::Hello;
  size_t expected_ = hello_bytes;
  size_t held_ = 0;
  std::array<unsigned char, hello_bytes> buffer_{};  // The message being received.
  Hello ours_{};
  Hello theirs_{};
  std::string output_;
};

/// As much of it as can be had now, for those who have others to serve: sends what there is to say, takes in what lies
/// in the socket, and so on. To be called again when there is more to read, until it is done(). PeerLost, or as feed().
base::Status shake_on(int fd, Handshake& handshake);

/// The whole exchange on a connected socket, blocking or not, for those who can wait until the deadline. Leaves the
/// socket open and its flags as they were. Timeout, PeerLost, or as feed().
base::Status shake_hands(int fd, Handshake::Role role, const Secret& secret, std::string_view purpose,
                         base::TimePoint deadline);

}  // namespace farad::net
