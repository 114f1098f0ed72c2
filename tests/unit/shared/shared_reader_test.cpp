// Copies of a model that others change without a lock, who may be killed in the middle.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "shared/reader.h"
#include "shared/seats.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

constexpr size_t page = 4096;

/// Two pages. As soon as the second is first touched, something happens.
class Trap {
 public:
  explicit Trap(std::function<void()> act) {
    at = static_cast<char*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    happens = std::move(act);
    ::mprotect(second(), page, PROT_NONE);
    struct sigaction action{};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~Trap() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(at, 2 * page);
  }
  Trap(const Trap&) = delete;

  static float* first() { return reinterpret_cast<float*>(at); }
  static float* second() { return reinterpret_cast<float*>(at + page); }

 private:
  static void touched(int, siginfo_t* info, void*) {
    if (static_cast<char*>(info->si_addr) < at + page || static_cast<char*>(info->si_addr) >= at + 2 * page) ::abort();
    ::mprotect(second(), page, PROT_READ | PROT_WRITE);
    happens();
  }

  static inline char* at = nullptr;
  static inline std::function<void()> happens;
  struct sigaction before_{};
};

class SharedReader : public testing::Test {
 protected:
  SharedReader() {
    const Layout layout({{"weight", at::zeros({2 * page / sizeof(float)})}},
                        {"SGD", {{"lr", 1}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}});
    Segment::create(fresh_name(), layout, {}, segment).raise();
  }

  /// One that sits on the first seat changes all and is killed before it has counted that.
  void change_and_die() {
    auto& seat = segment->header().seats[0];
    seat.pid.store(static_cast<uint32_t>(::getpid()));
    seat.started.store(1);  // Not by this process.
    seat.writing.store(1);
    auto* const values = reinterpret_cast<float*>(segment->values());
    std::fill(values, values + 2 * page / sizeof(float), 1.0f);
  }

  /// A copy, within which something happens: of both halves of the values.
  Reader::Seen copy_while(const std::function<void()>& act) {
    const Trap trap(act);
    Writer writer(segment, 1);
    Reader reader(segment, false);
    Reader::Seen seen;
    reader.copy({{0, page, Trap::first()}, {page, page, Trap::second()}}, writer, base::never, seen).raise();
    halves = {*Trap::first(), *Trap::second()};
    return seen;
  }

  std::shared_ptr<Segment> segment;
  std::pair<float, float> halves;
};

TEST_F(SharedReader, ACopyIsNotWholeIfAWriterWasKilledWithinIt) {
  EXPECT_FALSE(copy_while([&] { change_and_die(); }).torn);
  EXPECT_EQ(halves, std::pair(1.0f, 1.0f)) << "of before the change and of after it";
  EXPECT_EQ(segment->header().retries.load(), 1u);
}

TEST_F(SharedReader, NorIfItsSeatHasBeenTakenAgainSince) {
  EXPECT_FALSE(copy_while([&] {
                 change_and_die();
                 uint32_t seat = 0;
                 take_seat(segment->header(), seat).raise();
                 EXPECT_EQ(seat, 0u);
               }).torn);
  EXPECT_EQ(halves, std::pair(1.0f, 1.0f)) << "of before the change and of after it";
  EXPECT_EQ(segment->header().retries.load(), 1u);
  EXPECT_EQ(segment->header().cut_off.load(), 1u);
}

TEST_F(SharedReader, WhoIsDoneEndsNobodyElsesPause) {
  auto& header = segment->header();
  uint32_t seat = 0;
  take_seat(header, seat).raise();
  header.seats[seat].writing.store(1);  // and lives, so that nothing is ever at rest
  const int64_t longer = nanoseconds(base::Clock::now() + std::chrono::hours(1));
  header.pause_until.store(longer);
  EXPECT_TRUE(copy_while([] {}).torn);
  EXPECT_EQ(header.pause_until.load(), longer);
  header.pause_until.store(0);
  EXPECT_TRUE(copy_while([] {}).torn);
  EXPECT_EQ(header.pause_until.load(), 0) << "its own it does";
  EXPECT_EQ(header.waits.load(), 2u);
}

TEST_F(SharedReader, WhoWasKilledBeforeItKeepsNobodyFromCopying) {
  change_and_die();
  EXPECT_FALSE(copy_while([] {}).torn);
  EXPECT_EQ(halves, std::pair(1.0f, 1.0f));
  EXPECT_EQ(segment->header().retries.load(), 0u);
}

}  // namespace
}  // namespace farad::shared
