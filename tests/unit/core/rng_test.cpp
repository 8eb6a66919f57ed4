#include "sim/core/rng.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(Rng, StreamsAreIndependentAndRepeatable) {
  Rng a(1, "documents");
  Rng b(1, "documents");
  Rng c(1, "jitter");
  const std::uint64_t first = a.bits();
  EXPECT_EQ(first, b.bits());
  EXPECT_NE(first, c.bits());
}

TEST(Rng, IntegerStaysInRangeAndReachesBothEnds) {
  Rng rng(7, "range");
  bool low = false;
  bool high = false;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t value = rng.integer(-2, 3);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 3);
    low |= value == -2;
    high |= value == 3;
  }
  EXPECT_TRUE(low && high);
}

}  // namespace
}  // namespace longhaul
