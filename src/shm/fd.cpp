#include "shm/fd.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace farad::shm {
namespace {

constexpr size_t most_fds = 8;

base::Status await(int socket, short events, base::TimePoint deadline) {
  while (true) {
    // A deadline that has passed still asks once, without waiting.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::Clock::now()).count();
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    const int rc = ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX)));
    if (rc > 0) return {};
    if (rc == 0 && left <= 0) return {base::Code::Timeout, "[shm] the other side did not answer in time"};
    if (rc < 0 && errno != EINTR) return system_error("poll");
  }
}

}  // namespace

size_t most_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

base::Status system_error(const std::string& what) {
  return {base::Code::Invalid, "[shm] " + what + ": " + std::strerror(errno)};
}

base::Status send_with_fds(int socket, const std::string& bytes, const std::vector<int>& fds,
                           base::TimePoint deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(most_fds * sizeof(int))] = {};
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  size_t sent = 0;
  while (sent < bytes.size()) {
    if (auto status = await(socket, POLLOUT, deadline); !status.ok()) return status;
    const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return system_error("sendmsg");
    }
    sent += n;
    piece = {const_cast<char*>(bytes.data()) + sent, bytes.size() - sent};
    message.msg_control = nullptr;  // The descriptors went with the first byte.
    message.msg_controllen = 0;
  }
  return {};
}

base::Status receive_with_fds(int socket, size_t size, size_t count, std::string& bytes, std::vector<base::Fd>& fds,
                              base::TimePoint deadline) {
  bytes.assign(size, '\0');
  fds.clear();
  size_t received = 0;
  while (received < size) {
    if (auto status = await(socket, POLLIN, deadline); !status.ok()) return status;
    alignas(cmsghdr) char control[CMSG_SPACE(most_fds * sizeof(int))] = {};
    iovec piece{bytes.data() + received, size - received};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return system_error("recvmsg");
    }
    if (n == 0) return {base::Code::PeerLost, "[shm] the other side hung up while connecting"};
    received += n;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < here; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        fds.emplace_back(fd);
      }
    }
    // There was room for them in the message, so it is the process that has none.
    if ((message.msg_flags & MSG_CTRUNC) && fds.size() < most_fds) {
      return {base::Code::Invalid, "[shm] no descriptor is free for what the other side passed to us; ulimit -n is " +
                                       std::to_string(most_descriptors()) + ": raise it"};
    }
  }
  if (fds.size() != count) {
    return {base::Code::Protocol, "[shm] expected " + std::to_string(count) + " descriptors while connecting, got " +
                                      std::to_string(fds.size())};
  }
  return {};
}

}  // namespace farad::shm
