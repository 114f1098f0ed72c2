#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "net/tcp/address.h"
#include "net/tcp/hello.h"
#include "net/trust/handshake.h"

namespace farad::net {

/// A bare connection to a worker, in the hands of somebody who may say anything, at any pace. No read of it takes
/// longer than ten seconds.
class Intruder {
 public:
  /// Dials a worker.
  explicit Intruder(const std::string& address) : Intruder(::socket(AF_INET, SOCK_STREAM, 0)) {
    tcp::Address to;
    EXPECT_TRUE(tcp::Address::parse(address, to).ok());
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(to.port);
    EXPECT_EQ(inet_pton(AF_INET, to.host.c_str(), &place.sin_addr), 1);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  }
  /// Takes a connected socket over.
  explicit Intruder(int fd) : fd_(fd) {
    const timeval patience{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  Intruder(Intruder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Intruder() {
    if (fd_ >= 0) ::close(fd_);
  }

  void say(std::string_view bytes) { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void say(const tcp::Hello& hello) {
    const auto encoded = hello.encode();
    say(std::string_view(encoded.data(), encoded.size()));
  }

  bool shake_hands(Handshake::Role role, const Secret& secret = {}) {
    return net::shake_hands(fd_, role, secret, "tcp", base::Clock::now() + std::chrono::seconds(10)).ok();
  }

  tcp::Hello hear_hello() {
    tcp::Hello hello;
    const std::string bytes = hear(tcp::Hello::bytes);
    tcp::Hello::Encoded encoded{};
    bytes.copy(encoded.data(), encoded.size());
    EXPECT_TRUE(tcp::Hello::decode(encoded, hello).ok());
    return hello;
  }

  /// That many bytes, or as many as came before the end.
  std::string hear(size_t bytes) {
    std::string got(bytes, '\0');
    const ssize_t n = ::recv(fd_, got.data(), bytes, MSG_WAITALL);
    got.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return got;
  }

  /// Shakes hands and introduces itself as that rank.
  void introduce(base::Rank as, base::Rank to, uint64_t birth, uint64_t attempt) {
    EXPECT_TRUE(shake_hands(Handshake::Role::Connector));
    say(tcp::Hello{as, to, tcp::Hello::Answer::None, birth, attempt, "127.0.0.1:1"});
  }
  /// The same, and hears the answer.
  tcp::Hello::Answer join(base::Rank as, base::Rank to, uint64_t birth, uint64_t attempt) {
    introduce(as, to, birth, attempt);
    return hear_hello().answer;
  }

  /// Reads until the other side ends the connection; false if it does not.
  bool is_dropped() {
    char bytes[1024];
    for (;;) {
      const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;
    }
  }

 private:
  int fd_;
};

/// A port on which somebody else than a worker of ours listens.
class FalseListener {
 public:
  FalseListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    socklen_t length = sizeof place;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&place), &length), 0);
    address_ = tcp::Address{"127.0.0.1", ntohs(place.sin_port)}.text();
    const timeval patience{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~FalseListener() { ::close(fd_); }

  const std::string& address() const { return address_; }
  Intruder accept() { return Intruder(::accept(fd_, nullptr, nullptr)); }

 private:
  int fd_;
  std::string address_;
};

}  // namespace farad::net
