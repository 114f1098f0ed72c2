#include "net/tcp/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace farad::net::tcp {
namespace {

Io outcome(ssize_t moved) {
  if (moved > 0) return {Io::State::Moved, static_cast<size_t>(moved), 0};
  if (moved == 0) return {Io::State::Ended, 0, 0};
  // Interrupted, or the kernel is short of memory for a moment: the socket stays ready, so we are called again.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return {};
  return {Io::State::Broken, 0, errno};
}

/// Up to here the kernel takes longer to collect the pieces of a frame than we do.
constexpr size_t small = 512;

/// Copies the pieces into one, and says how long it is; 0 if it would be longer than that.
size_t gather(std::span<const iovec> from, std::array<char, small>& into) {
  size_t bytes = 0;
  for (const iovec& piece : from) {
    if (piece.iov_len > small - bytes) return 0;
    std::memcpy(into.data() + bytes, piece.iov_base, piece.iov_len);
    bytes += piece.iov_len;
  }
  return bytes;
}

bool is_within_this_machine(int descriptor) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  if (peer.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6&>(peer).sin6_addr);
  return peer.ss_family == AF_INET &&
         ntohl(reinterpret_cast<sockaddr_in&>(peer).sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int descriptor) : descriptor_(descriptor) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    // A program started by this one must not keep our connections open after we are gone.
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // Within a machine there is no congestion to control, but some of the ways to do it hold packets back by a timer
    // all the same (bbr). Every kernel has this one, which does not; should it be refused, the default stays.
    constexpr std::string_view plainest = "reno";
    if (is_within_this_machine(descriptor)) {
      ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, plainest.data(), plainest.size());
    }
  }
  ~PlainStream() override { ::close(descriptor_); }

  Io read(std::span<iovec> into) override {
    // Nearly always one slot, for which recv is the shortest way into the kernel.
    if (into.size() == 1) return outcome(::recv(descriptor_, into[0].iov_base, into[0].iov_len, 0));
    return outcome(::readv(descriptor_, into.data(), static_cast<int>(into.size())));
  }

  Io write(std::span<iovec> from) override {
    if (std::array<char, small> copy; size_t bytes = gather(from, copy)) {
      return outcome(::send(descriptor_, copy.data(), bytes, MSG_NOSIGNAL));
    }
    msghdr message{};
    message.msg_iov = from.data();
    message.msg_iovlen = from.size();
    return outcome(::sendmsg(descriptor_, &message, MSG_NOSIGNAL));
  }

  size_t unread() const override {
    int bytes = 0;
    return ::ioctl(descriptor_, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
  }

  void shutdown() override { ::shutdown(descriptor_, SHUT_RDWR); }
  int descriptor() const override { return descriptor_; }

 private:
  const int descriptor_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(int descriptor) { return std::make_unique<PlainStream>(descriptor); }

}  // namespace farad::net::tcp
