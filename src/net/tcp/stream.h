#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

namespace farad::net::tcp {

/// What became of a read or write.
struct Io {
  enum class State {
    Moved,   ///< `bytes` were, at least one; fewer than asked for means that there is no more just now
    Later,   ///< none: the socket is empty or full
    Ended,   ///< the other side closed the connection
    Broken,  ///< `error` says why
  };
  State state = State::Later;
  size_t bytes = 0;
  int error = 0;
};

/// A connection as bytes, never waiting: the plain socket, and the place for TLS around one. One thread may read
/// while another writes; shutdown() and unread() may be called by any.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Io read(std::span<iovec> into) = 0;
  virtual Io write(std::span<iovec> from) = 0;
  /// Bytes that have arrived and were not read.
  virtual size_t unread() const = 0;
  /// Ends both directions; the other side sees it at once. The descriptor stays until the Stream is destroyed.
  virtual void shutdown() = 0;
  /// To be watched.
  virtual int descriptor() const = 0;
};

/// Takes over the descriptor of a connected socket, which it makes non-blocking and undelayed (TCP_NODELAY).
std::unique_ptr<Stream> make_plain_stream(int descriptor);

}  // namespace farad::net::tcp
