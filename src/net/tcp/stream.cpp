#include "net/tcp/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace farad::net::tcp {
namespace {

Io outcome(ssize_t moved) {
  if (moved > 0) return {Io::State::Moved, static_cast<size_t>(moved), 0};
  if (moved == 0) return {Io::State::Ended, 0, 0};
  // Interrupted, or the kernel is short of memory for a moment: the socket stays ready, so we are called again.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return {};
  return {Io::State::Broken, 0, errno};
}

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int descriptor) : descriptor_(descriptor) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    // A program started by this one must not keep our connections open after we are gone.
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~PlainStream() override { ::close(descriptor_); }

  Io read(std::span<iovec> into) override {
    // Nearly always one slot, for which recv is the shortest way into the kernel.
    if (into.size() == 1) return outcome(::recv(descriptor_, into[0].iov_base, into[0].iov_len, 0));
    return outcome(::readv(descriptor_, into.data(), static_cast<int>(into.size())));
  }

  Io write(std::span<iovec> from) override {
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
