#include "shm/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace farad::shm {
namespace {

using base::Code;

base::TimePoint soon() { return base::Clock::now() + std::chrono::seconds(10); }

TEST(Memory, IsSharedByWhoeverHasTheDescriptor) {
  Memory one, two;
  ASSERT_TRUE(Memory::create("test", 4096, one).ok());
  ASSERT_TRUE(Memory::adopt(base::Fd(::dup(one.fd())), 4096, two).ok());
  std::strcpy(static_cast<char*>(one.data()), "hello");
  EXPECT_STREQ(static_cast<char*>(two.data()), "hello");
}

TEST(Memory, CannotBeShrunkUnderUs) {
  Memory memory;
  ASSERT_TRUE(Memory::create("test", 8192, memory).ok());
  EXPECT_NE(::ftruncate(memory.fd(), 4096), 0);
  EXPECT_NE(::ftruncate(memory.fd(), 16384), 0);
}

TEST(Memory, RefusesWhatItsSenderCouldShrink) {
  base::Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  Memory memory;
  EXPECT_EQ(Memory::adopt(std::move(fd), 4096, memory).code(), Code::Protocol);
}

TEST(Memory, RefusesAnotherSizeThanAgreed) {
  Memory one, two;
  ASSERT_TRUE(Memory::create("test", 8192, one).ok());
  const auto status = Memory::adopt(base::Fd(::dup(one.fd())), 4096, two);
  EXPECT_EQ(status.code(), Code::Protocol);
  EXPECT_NE(status.message().find("8192"), std::string::npos) << status.message();
}

struct Pair {
  Pair() { ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends); }
  ~Pair() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int ends[2];
};

TEST(FdPassing, CarriesBytesAndDescriptors) {
  Pair pair;
  Memory memory;
  ASSERT_TRUE(Memory::create("test", 4096, memory).ok());
  ASSERT_TRUE(send_with_fds(pair.ends[0], "hello", {memory.fd(), memory.fd()}, soon()).ok());
  std::string bytes;
  std::vector<base::Fd> fds;
  ASSERT_TRUE(receive_with_fds(pair.ends[1], 5, 2, bytes, fds, soon()).ok());
  EXPECT_EQ(bytes, "hello");
  Memory adopted;
  EXPECT_TRUE(Memory::adopt(std::move(fds[1]), 4096, adopted).ok());
}

TEST(FdPassing, AnotherNumberOfDescriptorsIsAnError) {
  Pair pair;
  ASSERT_TRUE(send_with_fds(pair.ends[0], "hello", {pair.ends[0]}, soon()).ok());
  std::string bytes;
  std::vector<base::Fd> fds;
  EXPECT_EQ(receive_with_fds(pair.ends[1], 5, 2, bytes, fds, soon()).code(), Code::Protocol);
}

TEST(FdPassing, NoRoomForADescriptorIsSaidToBeJustThat) {
  Pair pair;
  ASSERT_TRUE(send_with_fds(pair.ends[0], "hello", {pair.ends[0]}, soon()).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1;  // Those that are open stay so.
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string bytes;
  std::vector<base::Fd> fds;
  const auto status = receive_with_fds(pair.ends[1], 5, 1, bytes, fds, soon());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), Code::Invalid);
  EXPECT_NE(status.message().find("ulimit -n is 1:"), std::string::npos) << status.message();
}

TEST(FdPassing, SilenceAndHangingUpAreTold) {
  Pair pair;
  std::string bytes;
  std::vector<base::Fd> fds;
  EXPECT_EQ(receive_with_fds(pair.ends[1], 5, 0, bytes, fds, base::Clock::now()).code(), Code::Timeout);
  ::shutdown(pair.ends[0], SHUT_RDWR);
  EXPECT_EQ(receive_with_fds(pair.ends[1], 5, 0, bytes, fds, soon()).code(), Code::PeerLost);
}

}  // namespace
}  // namespace farad::shm
