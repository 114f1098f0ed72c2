// A copy past the cache copies what it is told to and nothing else, wherever it begins and ends.

#include "base/stream_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace farad::base {
namespace {

TEST(StreamCopy, CopiesExactlyThatMuch) {
  constexpr size_t room = 400, most_offset = 70;
  std::vector<unsigned char> from(room);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (size_t offset = 0; offset < most_offset; offset += 3) {
    for (size_t shift = 0; shift < most_offset; shift += 7) {
      for (const size_t bytes : {0, 1, 15, 16, 63, 64, 65, 128, 200, 257}) {
        std::vector<unsigned char> to(room, 255), expected = to;
        std::copy_n(from.begin() + static_cast<ptrdiff_t>(shift), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(offset));
        stream_copy(to.data() + offset, from.data() + shift, bytes);
        ASSERT_EQ(to, expected) << bytes << " bytes from " << shift << " to " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace farad::base
