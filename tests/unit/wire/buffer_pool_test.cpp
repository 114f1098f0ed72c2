#include "wire/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace farad::wire {
namespace {

constexpr size_t MiB = 1 << 20;

TEST(BufferPool, EverySizeIsAlignedAndWritable) {
  const auto pool = BufferPool::make(MiB);
  for (size_t bytes :
       {1ul, 100ul, 4031ul, 4032ul, 4033ul, 8127ul, 8128ul, 8129ul, 10'000ul, 65'536ul, MiB, 5 * MiB + 1}) {
    const auto memory = pool->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0u) << bytes;
    std::memset(memory.get(), 1, bytes);
  }
  EXPECT_EQ(pool->stats().lent_bytes, 0u);
  EXPECT_FALSE(pool->allocate(0));
}

TEST(BufferPool, ADeadTensorsMemoryIsUsedAgain) {
  const auto pool = BufferPool::make(64 * MiB);
  const void* first = pool->allocate(MiB).get();
  const auto again = pool->allocate(MiB - 1000);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(pool->stats().recycled, 1u);
}

TEST(BufferPool, AtMostAQuarterOfABlockIsUnused) {
  const auto pool = BufferPool::make(0);
  for (size_t bytes = 10'000; bytes < 100 * MiB; bytes += bytes / 7) {
    const auto memory = pool->allocate(bytes);
    EXPECT_GE(pool->stats().lent_bytes, bytes);
    EXPECT_LE(pool->stats().lent_bytes, bytes + bytes / 4 + 4096) << bytes;
  }
}

TEST(BufferPool, SmallRequestsDoNotTouchIt) {
  const auto pool = BufferPool::make(MiB);
  const auto memory = pool->allocate(1000);
  EXPECT_EQ(pool->stats().fresh, 0u);
}

TEST(BufferPool, KeepsNoMoreThanItWasToldTo) {
  const auto pool = BufferPool::make(10 * MiB);
  {
    std::vector<at::DataPtr> lent;
    for (int i = 0; i < 20; ++i) lent.push_back(pool->allocate(MiB));
    EXPECT_GE(pool->stats().lent_bytes, 20 * MiB);
  }
  EXPECT_LE(pool->stats().idle_bytes, 10 * MiB);
  EXPECT_GE(pool->stats().idle_bytes, 7 * MiB);
  (void)pool->allocate(11 * MiB);  // larger than all that may be kept: goes straight back
  EXPECT_GE(pool->stats().idle_bytes, 7 * MiB);
  pool->trim();
  EXPECT_EQ(pool->stats().idle_bytes, 0u);
}

TEST(BufferPool, WhatWasNotAskedForLongestGoesFirst) {
  const auto pool = BufferPool::make(10 * MiB);
  (void)pool->allocate(3 * MiB);
  (void)pool->allocate(5 * MiB);
  (void)pool->allocate(4 * MiB);  // room for it is made by dropping the three
  const auto fresh = pool->stats().fresh;
  (void)pool->allocate(5 * MiB);
  (void)pool->allocate(4 * MiB);
  EXPECT_EQ(pool->stats().fresh, fresh);
  (void)pool->allocate(3 * MiB);
  EXPECT_EQ(pool->stats().fresh, fresh + 1);
}

TEST(BufferPool, MemoryOutlivesWhoeverHeldThePool) {
  auto pool = BufferPool::make(MiB);
  auto memory = pool->allocate(100'000);
  pool.reset();
  std::memset(memory.get(), 1, 100'000);
  memory.clear();
}

TEST(BufferPool, WhatTheSystemDoesNotHaveIsBadAlloc) {
  const auto pool = BufferPool::make(MiB);
  EXPECT_THROW((void)pool->allocate(size_t{1} << 62), std::bad_alloc);
  EXPECT_EQ(pool->stats().lent_bytes, 0u);
}

TEST(BufferPool, ManyThreadsShareIt) {
  const auto pool = BufferPool::make(4 * MiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (size_t i = 0; i < 500; ++i) {
        const size_t bytes = 10'000 + (i * 7919 + t * 104729) % 200'000;
        const auto memory = pool->allocate(bytes);
        static_cast<char*>(memory.get())[bytes - 1] = static_cast<char>(t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool->stats().lent_bytes, 0u);
  EXPECT_EQ(pool->stats().fresh + pool->stats().recycled, 2000u);
  EXPECT_LE(pool->stats().idle_bytes, 4 * MiB);
}

}  // namespace
}  // namespace farad::wire
