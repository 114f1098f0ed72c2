#include "shm/arena.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace farad::shm {
namespace {

constexpr size_t mib = size_t{1} << 20;

/// A process at the other end of a socket, which lives until it is told to end.
class Neighbour {
 public:
  Neighbour() {
    // A socket pair would not do: the kernel takes whoever made it for the process behind either end.
    sockaddr address{};
    address.sa_family = AF_UNIX;
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::bind(listener, &address, sizeof(sa_family_t)) != 0 || ::listen(listener, 1) != 0) std::abort();
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
    child_ = ::fork();
    if (child_ == 0) {
      const int end = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(end, reinterpret_cast<sockaddr*>(&bound), size) != 0) ::_exit(1);
      char byte;
      (void)!::read(end, &byte, 1);
      ::_exit(0);
    }
    socket_ = base::Fd(::accept(listener, nullptr, nullptr));
    process_ = Process::behind(socket_.get());
    ::close(listener);
  }
  ~Neighbour() { end(); }

  void stop() { ::kill(child_, SIGSTOP); }
  void end() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    child_ = -1;
  }
  const std::shared_ptr<Process>& process() const { return process_; }

 private:
  pid_t child_;
  base::Fd socket_;
  std::shared_ptr<Process> process_;
};

TEST(Process, HasEndedOnlyWhenItHas) {
  Neighbour neighbour;
  ASSERT_TRUE(neighbour.process());
  EXPECT_FALSE(neighbour.process()->ended());
  neighbour.stop();
  EXPECT_FALSE(neighbour.process()->ended()) << "a stopped one may go on";
  neighbour.end();
  EXPECT_TRUE(neighbour.process()->ended());
}

TEST(Arena, UsesABlockAgain) {
  auto arena = Arena::make(64 * mib);
  auto block = arena->allocate(4 * mib);
  const uint64_t id = block->id();
  arena->give_back(std::move(block));
  EXPECT_EQ(arena->allocate(4 * mib)->id(), id);
}

TEST(Arena, UsesSmallBlocksInTurn) {
  auto arena = Arena::make(64 * mib);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 12; ++i) {
    auto block = arena->allocate(mib);
    ids.push_back(block->id());
    arena->give_back(std::move(block));
  }
  EXPECT_EQ(arena->stats().bytes, 4u * mib);
  for (size_t i = 4; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 4]) << "the one used longest ago";
}

TEST(Arena, TakesNoMoreThanItsLimit) {
  auto arena = Arena::make(4 * mib);
  auto one = arena->allocate(3 * mib);
  ASSERT_TRUE(one);
  EXPECT_FALSE(arena->allocate(2 * mib));
  EXPECT_FALSE(arena->allocate(5 * mib));
  std::shared_ptr<Block> mapped;  // By a borrower, which closes the descriptor.
  ASSERT_TRUE(Block::adopt(one->id(), one->capacity(), base::Fd(::dup(one->fd())), mapped).ok());
  std::fill_n(one->data(), one->capacity(), 'x');
  arena->give_back(std::move(one));
  EXPECT_TRUE(arena->allocate(2 * mib)) << "what is idle makes room";
  EXPECT_EQ(mapped->state().load(), Block::State::Retired) << "and those who have it mapped can see that";
  EXPECT_EQ(mapped->data()[mib], 0) << "its pages are given back although they still have it mapped";
}

TEST(Arena, ALentBlockComesBackWhenTheBorrowerSaysSo) {
  Neighbour neighbour;
  auto arena = Arena::make(mib);
  auto block = arena->allocate(mib);
  auto mapped = block;
  arena->lend(std::move(block), neighbour.process());
  EXPECT_FALSE(arena->allocate(mib));
  mapped->state().store(Block::State::WithOwner);
  EXPECT_TRUE(arena->allocate(mib));
}

TEST(Arena, ABlockOfASilentBorrowerStaysOutUntilItHasEnded) {
  Neighbour neighbour;
  auto arena = Arena::make(mib);
  arena->lend(arena->allocate(mib), neighbour.process());
  neighbour.stop();
  EXPECT_FALSE(arena->allocate(mib)) << "it may go on and write";
  neighbour.end();
  EXPECT_TRUE(arena->allocate(mib));
}

TEST(Arena, OnlyTheBorrowerCanSendABlockHome) {
  Neighbour one, other;
  auto arena = Arena::make(mib);
  auto block = arena->allocate(mib);
  const uint64_t id = block->id();
  arena->lend(std::move(block), one.process());
  EXPECT_FALSE(arena->take_home(id, other.process().get()));
  EXPECT_FALSE(arena->take_home(id + 1, one.process().get()));
  EXPECT_TRUE(arena->take_home(id, one.process().get()));
  EXPECT_FALSE(arena->take_home(id, one.process().get())) << "once";
}

}  // namespace
}  // namespace farad::shm
