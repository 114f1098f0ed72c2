#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/rendezvous/rendezvous.h"
#include "temporary_directory.h"

namespace farad::net::test {

using namespace std::chrono_literals;

using farad::test::TemporaryDirectory;

/// A port of loopback that was free a moment ago.
inline uint16_t free_port(int family = AF_INET) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    length = sizeof(sockaddr_in);
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    length = sizeof(sockaddr_in6);
  }
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(fd);
  if (!bound) return 0;
  return ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                 : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
}

inline Member member(int rank, std::string name = {}) {
  static std::atomic<uint64_t> births{1};
  Member member;
  member.rank = base::Rank(static_cast<uint16_t>(rank));
  member.name = name.empty() ? "worker" + std::to_string(rank) : std::move(name);
  member.machine = "test machine";
  member.addresses = {{"tcp", "127.0.0.1:" + std::to_string(4000 + rank)}};
  member.birth = births++;
  member.version = "farad test";
  return member;
}

/// A worker that joins in a thread of its own.
class Joiner {
 public:
  struct Options {
    std::chrono::milliseconds timeout = 20s;
    std::string secret = {};
    base::Runtime* runtime = &base::Runtime::real();
  };

  Joiner(const std::string& url, Member self, int size, Options options) {
    open_rendezvous(url, self.rank, *options.runtime, rendezvous_).raise();
    request_ = {self, size, options.runtime->now() + options.timeout, Secret(options.secret)};
    thread_ = std::thread([this] { status_ = rendezvous_->join(request_, members_, rejoined_); });
  }
  Joiner(const std::string& url, Member self, int size) : Joiner(url, std::move(self), size, Options{}) {}
  ~Joiner() {
    if (thread_.joinable()) thread_.join();
  }

  /// What join() returned, once it has.
  const base::Status& status() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  const std::vector<Member>& members() { return status(), members_; }
  bool rejoined() { return status(), rejoined_; }
  const Member& self() const { return request_.self; }
  base::TimePoint deadline() const { return request_.deadline; }
  void close() { rendezvous_->close(); }

 private:
  std::unique_ptr<Rendezvous> rendezvous_;
  JoinRequest request_;
  base::Status status_;
  std::vector<Member> members_;
  bool rejoined_ = false;
  std::thread thread_;
};

using Joiners = std::vector<std::unique_ptr<Joiner>>;

inline Joiners start_group(const std::string& url, int size, Joiner::Options options = {}) {
  Joiners joiners;
  for (int rank = 0; rank < size; ++rank) joiners.push_back(std::make_unique<Joiner>(url, member(rank), size, options));
  return joiners;
}

inline void expect_failure(Joiner& joiner, base::Code code, const std::vector<std::string>& parts) {
  const auto& status = joiner.status();
  EXPECT_EQ(status.code(), code) << base::to_string(status.code()) << ": " << status.message();
  EXPECT_EQ(status.message().rfind("[net] rendezvous ", 0), 0u) << status.message();
  for (const auto& part : parts) EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

}  // namespace farad::net::test
