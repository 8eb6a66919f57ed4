#include "sim/core/sim_time.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(Time, RoundsSecondsToTheNearestPicosecond) {
  EXPECT_EQ(Time::from_seconds(1e-12 * 2.4).ps(), 2);
  EXPECT_EQ(Time::from_seconds(1e-12 * 2.6).ps(), 3);
  EXPECT_EQ(Time::from_seconds(-1e-12 * 2.6).ps(), -3);
  EXPECT_EQ(Time::from_us(1.5).ps(), 1'500'000);
}

TEST(Time, AddsAndCompares) {
  EXPECT_EQ((Time::from_ps(3) + Time::from_ps(4)).ps(), 7);
  EXPECT_LT(Time::from_ps(3), Time::from_ps(4));
}

TEST(TimeDeathTest, OverflowIsABugWithTheValues) {
  EXPECT_DEATH(static_cast<void>(Time::max() + Time::from_ps(1)), "time overflow: 9223372036854775807 ps \\+ 1 ps");
}

}  // namespace
}  // namespace longhaul
