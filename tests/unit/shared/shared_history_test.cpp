// The last updates, as they are told while others make new ones.

#include <ATen/ATen.h>
#include <farad/shared.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <thread>

#include "shared/history.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

TEST(SharedHistory, ARecordThatIsBeingWrittenOverIsNotFoundMixed) {
  const auto name = fresh_name();
  Linear bound = linear();
  const auto model = Model::create(name, bound);
  const auto segment = segment_of(name);
  // All in one place, one written over the other; all that is known of each is its number.
  std::atomic<uint64_t> latest = most_records;
  std::atomic<bool> over = false;
  std::thread writing([&] {
    for (int i = 0; !over; ++i) {
      const uint64_t version = latest.fetch_add(most_records) + most_records;
      if (i % 64 == 0) std::this_thread::yield();  // So that the one before is found now and then.
      write_down(segment->header(), {static_cast<uint32_t>(version), 0, version, version}, version);
    }
  });
  uint64_t found = 0, mixed = 0;
  for (uint64_t i = 0; i < 3'000'000 && found < 20'000; ++i) {
    Ticket update;
    const uint64_t version = latest - most_records;  // The one that is being written over.
    if (!look_up(segment->header(), version, update)) continue;
    ++found;
    mixed +=
        update.seat != static_cast<uint32_t>(version) || update.sequence != version || update.version_read != version;
  }
  over = true;
  writing.join();
  EXPECT_GT(found, 0u);
  EXPECT_EQ(mixed, 0u) << "of " << found;
}

TEST(SharedHistory, OneThatWasHeldUpForLongWritesOverNothingNewer) {
  const auto name = fresh_name();
  Linear bound = linear();
  const auto model = Model::create(name, bound);
  const auto segment = segment_of(name);
  auto& header = segment->header();
  write_down(header, {0, 0, 1, 1}, 7 + most_records);
  header.books.version.store(7 + most_records);
  write_down(header, {0, 0, 2, 2}, 7);
  Ticket update;
  EXPECT_FALSE(look_up(header, 7, update));
  EXPECT_TRUE(look_up(header, 7 + most_records, update));
  EXPECT_EQ(update.sequence, 1u);
}

TEST(SharedHistory, WhileOthersStepMixesNoTwoUpdates) {
  // By one worker alone, whose updates are its sequence; the oldest one lies where the next one will.
  const auto name = fresh_name();
  Linear bound = linear(), other = linear();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(0.1), {Policy::Hogwild});
  const auto watching = Model::attach(name, other);
  std::atomic<bool> over = false;
  std::thread stepping([&] {
    for (int i = 0; i < 30'000; ++i) model.step({at::ones({3, 4}), at::Tensor()});
    over = true;
  });
  uint64_t seen = 0, mixed = 0;
  do {
    for (const auto& update : watching.history()) {
      ++seen;
      mixed += update.sequence != update.version || update.version_read + 1 != update.version;
    }
  } while (!over);
  stepping.join();
  EXPECT_EQ(mixed, 0u) << "of " << seen;
  EXPECT_EQ(watching.history().size(), 1'024u);
}

}  // namespace
}  // namespace farad::shared
