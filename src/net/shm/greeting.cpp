#include "net/shm/greeting.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace farad::net {
namespace {

constexpr std::string_view purpose = "shm";
/// Changes whenever anything that lies in shared memory does.
constexpr uint32_t layout_version = 1;
constexpr size_t address_bytes = 64;

// Both ends are processes of one machine, so structs travel as they are.
struct GreetingBytes {
  uint32_t layout;
  uint32_t slot;
  uint64_t birth;
  uint64_t accepted;
  uint16_t rank;
  char address[address_bytes];
};

struct AnswerBytes {
  ShmWelcome welcome;
  uint32_t slot;
  uint64_t birth;
};

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
T from_bytes(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// A struct that its sender wrote in one piece, so it is there as a whole once there is anything.
template <class T>
base::Status receive_now(int socket, size_t fds_beside, std::string& bytes, std::vector<base::Fd>& fds) {
  return shm::receive_with_fds(socket, sizeof(T), fds_beside, bytes, fds, base::Clock::now());
}

base::Status same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return shm::system_error("SO_PEERCRED");
  if (peer.uid == ::geteuid()) return {};
  return {base::Code::Denied, "[shm] process " + std::to_string(peer.pid) + " of user " + std::to_string(peer.uid) +
                                  " is not of our user " + std::to_string(::geteuid())};
}

socklen_t fill(sockaddr_un& name, const std::string& address) {
  name = {};
  name.sun_family = AF_UNIX;
  const size_t n = std::min(address.size(), sizeof(name.sun_path) - 1);
  std::memcpy(name.sun_path + 1, address.data(), n);  // A leading zero makes it abstract.
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
}

/// Nothing that is done with it waits.
base::Status make_socket(base::Fd& out) {
  out = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return out ? base::Status() : shm::system_error("socket");
}

}  // namespace

std::string unguessable_address() {
  unsigned char random[16];
  if (::getrandom(random, sizeof(random), 0) != sizeof(random)) shm::system_error("getrandom").raise();
  std::string text = "farad-";
  for (unsigned char byte : random) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

base::Status listen_on(const std::string& address, base::Fd& out) {
  base::Fd socket;
  if (auto s = make_socket(socket); !s.ok()) return s;
  sockaddr_un name;
  const socklen_t size = fill(name, address);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) return shm::system_error("bind");
  if (::listen(socket.get(), SOMAXCONN) != 0) return shm::system_error("listen");
  out = std::move(socket);
  return {};
}

base::Status connect_to(const std::string& address, base::Fd& out) {
  base::Fd socket;
  if (auto s = make_socket(socket); !s.ok()) return s;
  sockaddr_un name;
  const socklen_t size = fill(name, address);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) {
    if (errno == ECONNREFUSED) return {base::Code::PeerLost, "nobody listens at its address any more"};
    if (errno == EAGAIN) return {base::Code::Busy, "too many others are waiting for it"};
    return shm::system_error("connect");
  }
  if (auto s = same_user(socket.get()); !s.ok()) return s;
  out = std::move(socket);
  return {};
}

ShmCaller::ShmCaller(base::Fd socket, const Secret& secret, ShmGreeting self, ShmBellFds own, ShmLink& link)
    : socket_(std::move(socket)),
      handshake_(Handshake::Role::Connector, secret, purpose),
      self_(std::move(self)),
      own_(own),
      link_(link) {}

base::Status ShmCaller::step(bool& answered) {
  if (!greeted_) {
    if (auto s = shake_on(socket_.get(), handshake_); !s.ok() || !handshake_.done()) return s;
    GreetingBytes greeting{};
    greeting.layout = layout_version;
    greeting.slot = self_.slot;
    greeting.birth = self_.birth;
    greeting.accepted = self_.accepted;
    greeting.rank = self_.rank.value;
    std::memcpy(greeting.address, self_.address.data(), std::min(self_.address.size(), address_bytes - 1));
    greeted_ = true;
    return shm::send_with_fds(socket_.get(), bytes_of(greeting), {link_.memory_fd(), own_.page, own_.eventfd},
                              base::Clock::now());
  }
  std::string bytes;
  std::vector<base::Fd> received;
  if (auto s = receive_now<AnswerBytes>(socket_.get(), 2, bytes, received); !s.ok()) return s;
  const auto answer = from_bytes<AnswerBytes>(bytes);
  answered = true;
  welcome = answer.welcome;
  birth = answer.birth;
  if (welcome != ShmWelcome::Yes) return {};
  if (auto s = link_.attach(std::move(received[0]), std::move(received[1]), answer.slot); !s.ok()) return s;
  link_.socket = std::move(socket_);
  return {};
}

ShmHearing::ShmHearing(base::Fd s, const Secret& secret)
    : socket(std::move(s)), handshake_(Handshake::Role::Acceptor, secret, purpose) {}

base::Status ShmHearing::step(bool& heard) {
  if (!handshake_.done()) {
    if (auto s = same_user(socket.get()); !s.ok()) return s;
    return shake_on(socket.get(), handshake_);
  }
  std::string bytes;
  std::vector<base::Fd> fds;
  if (auto s = receive_now<GreetingBytes>(socket.get(), 3, bytes, fds); !s.ok()) return s;
  auto greeting = from_bytes<GreetingBytes>(bytes);
  if (greeting.layout != layout_version) {
    return {base::Code::Protocol, "[shm] rank " + std::to_string(greeting.rank) +
                                      " lays shared memory out as version " + std::to_string(greeting.layout) +
                                      ", we as " + std::to_string(layout_version) +
                                      ": run the same farad everywhere on this machine"};
  }
  heard = true;
  greeting.address[address_bytes - 1] = '\0';
  caller = {base::Rank(greeting.rank), greeting.birth, greeting.accepted, greeting.slot, greeting.address};
  if (auto s = ShmLink::adopt(std::move(fds[0]), link); !s.ok()) return s;
  return link->attach(std::move(fds[1]), std::move(fds[2]), greeting.slot);
}

base::Status answer_greeting(int socket, ShmWelcome welcome, ShmBellFds own, uint32_t slot, uint64_t birth) {
  return shm::send_with_fds(socket, bytes_of(AnswerBytes{welcome, slot, birth}), {own.page, own.eventfd},
                            base::Clock::now());
}

}  // namespace farad::net
