#include "net/shm/greeting.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "net/trust/handshake.h"

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

base::Status make_socket(base::Fd& out) {
  out = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
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
    return shm::system_error("connect");
  }
  if (auto s = same_user(socket.get()); !s.ok()) return s;
  out = std::move(socket);
  return {};
}

base::Status greet(base::Fd socket, const Secret& secret, const ShmGreeting& self, ShmBellFds own, ShmLink& link,
                   ShmWelcome& welcome, uint64_t& birth, base::TimePoint deadline) {
  if (auto s = shake_hands(socket.get(), Handshake::Role::Connector, secret, purpose, deadline); !s.ok()) return s;
  GreetingBytes greeting{};
  greeting.layout = layout_version;
  greeting.slot = self.slot;
  greeting.birth = self.birth;
  greeting.accepted = self.accepted;
  greeting.rank = self.rank.value;
  std::memcpy(greeting.address, self.address.data(), std::min(self.address.size(), address_bytes - 1));
  const std::vector<int> fds{link.memory_fd(), own.page, own.eventfd};
  if (auto s = shm::send_with_fds(socket.get(), bytes_of(greeting), fds, deadline); !s.ok()) return s;

  std::string bytes;
  std::vector<base::Fd> received;
  if (auto s = shm::receive_with_fds(socket.get(), sizeof(AnswerBytes), 2, bytes, received, deadline); !s.ok())
    return s;
  const auto answer = from_bytes<AnswerBytes>(bytes);
  welcome = answer.welcome;
  birth = answer.birth;
  if (welcome != ShmWelcome::Yes) return {};
  if (auto s = link.attach(std::move(received[0]), std::move(received[1]), answer.slot); !s.ok()) return s;
  link.socket = std::move(socket);
  return {};
}

base::Status hear_greeting(int socket, const Secret& secret, ShmGreeting& caller, std::unique_ptr<ShmLink>& link,
                           base::TimePoint deadline) {
  if (auto s = same_user(socket); !s.ok()) return s;
  if (auto s = shake_hands(socket, Handshake::Role::Acceptor, secret, purpose, deadline); !s.ok()) return s;
  std::string bytes;
  std::vector<base::Fd> fds;
  if (auto s = shm::receive_with_fds(socket, sizeof(GreetingBytes), 3, bytes, fds, deadline); !s.ok()) return s;
  auto greeting = from_bytes<GreetingBytes>(bytes);
  if (greeting.layout != layout_version) {
    return {base::Code::Protocol, "[shm] rank " + std::to_string(greeting.rank) +
                                      " lays shared memory out as version " + std::to_string(greeting.layout) +
                                      ", we as " + std::to_string(layout_version) +
                                      ": run the same farad everywhere on this machine"};
  }
  greeting.address[address_bytes - 1] = '\0';
  caller = {base::Rank(greeting.rank), greeting.birth, greeting.accepted, greeting.slot, greeting.address};
  if (auto s = ShmLink::adopt(std::move(fds[0]), link); !s.ok()) return s;
  return link->attach(std::move(fds[1]), std::move(fds[2]), greeting.slot);
}

base::Status answer_greeting(int socket, ShmWelcome welcome, ShmBellFds own, uint32_t slot, uint64_t birth,
                             base::TimePoint deadline) {
  return shm::send_with_fds(socket, bytes_of(AnswerBytes{welcome, slot, birth}), {own.page, own.eventfd}, deadline);
}

}  // namespace farad::net
