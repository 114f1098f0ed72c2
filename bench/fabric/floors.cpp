#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "base/futex.h"
#include "common/sample.h"
#include "fabric/roles.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;

void pin(const std::string& core) {
  if (core == "-1") return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(std::stoi(core), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

void check(bool fine, const char* what) {
  if (!fine) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

/// Two connected sockets of the given kind.
std::pair<int, int> connected(const std::string& kind) {
  int ends[2];
  if (kind == "unix") {
    check(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    return {ends[0], ends[1]};
  }
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  check(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  check(::listen(listener, 1) == 0, "listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  check(::connect(ends[0], reinterpret_cast<sockaddr*>(&address), size) == 0, "connect");
  ends[1] = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int on = 1;
  for (int end : ends) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return {ends[0], ends[1]};
}

bool read_all(int fd, char* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(fd, data + done, size - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, const char* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, data + done, size - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

Sample socket_echo(const Words& words, size_t bytes) {
  auto [mine, theirs] = connected(words[0]);
  std::vector<char> buffer(bytes);
  const pid_t child = ::fork();
  if (child == 0) {
    pin(words[2]);
    ::close(mine);
    while (read_all(theirs, buffer.data(), bytes) && write_all(theirs, buffer.data(), bytes)) {
    }
    ::_exit(0);
  }
  pin(words[1]);
  ::close(theirs);
  const auto sample = time_each(
      [&, mine = mine] {
        check(write_all(mine, buffer.data(), bytes) && read_all(mine, buffer.data(), bytes), "echo");
      },
      400ms);
  ::close(mine);
  ::waitpid(child, nullptr, 0);
  return sample;
}

}  // namespace

void futex_ping(const Words& words) {
  struct Shared {
    alignas(64) std::atomic<uint32_t> ping{0};
    alignas(64) std::atomic<uint32_t> pong{0};
  };
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared;
  auto await = [](std::atomic<uint32_t>& word, uint32_t old) {
    while (word.load() == old) base::futex_wait(word, old, base::never);
    return word.load();
  };
  constexpr uint32_t stop = UINT32_MAX;
  const pid_t child = ::fork();
  if (child == 0) {
    pin(words[1]);
    for (uint32_t seen = 0; (seen = await(shared->ping, seen)) != stop;) {
      shared->pong.store(seen);
      base::futex_wake(shared->pong, 1);
    }
    ::_exit(0);
  }
  pin(words[0]);
  uint32_t round = 0;
  const auto sample = time_each(
      [&] {
        shared->ping.store(++round);
        base::futex_wake(shared->ping, 1);
        await(shared->pong, round - 1);
      },
      400ms);
  shared->ping.store(stop);
  base::futex_wake(shared->ping, 1);
  ::waitpid(child, nullptr, 0);
  std::cout << nlohmann::json{{"16", sample}} << std::endl;
}

void socket_ping(const Words& words) {
  nlohmann::json result;
  for (size_t i = 3; i < words.size(); ++i) result[words[i]] = socket_echo(words, std::stoull(words[i]));
  std::cout << result << std::endl;
}

void memcpy_warm(const Words& words) {
  nlohmann::json result;
  for (const auto& word : words) {
    std::vector<char> from(std::stoull(word), 'x'), to(from.size());
    result[word] = time_each([&] { std::memcpy(to.data(), from.data(), from.size()); }, 200ms);
  }
  std::cout << result << std::endl;
}

}  // namespace farad::bench
