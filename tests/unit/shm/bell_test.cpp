#include "shm/bell_page.h"

#include <gtest/gtest.h>

#include <new>

namespace farad::shm {
namespace {

TEST(BellPage, RingingASlotMarksItAndTheRing) {
  alignas(BellPage) char bytes[BellPage::bytes] = {};
  auto* page = new (bytes) BellPage{};
  page->ring_slot(0, -1);
  page->ring_slot(1023, -1);
  EXPECT_EQ(page->slot_bits[0].load(), 1u);
  EXPECT_EQ(page->slot_bits[15].load(), uint64_t{1} << 63);
  EXPECT_EQ(page->state.load(), BellPage::rung);
}

}  // namespace
}  // namespace farad::shm
