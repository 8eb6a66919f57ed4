#include "sim/core/sim_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "sim/core/error.h"

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

void expect_limit(const std::function<Time()>& compute) {
  try {
    static_cast<void>(compute());
    FAIL() << "no LimitError";
  } catch (const LimitError& error) {
    EXPECT_STREQ(error.what(), "simulated time passes 106 days; make the step smaller or the cluster larger");
  }
}

TEST(Time, BeyondAnInt64IsALimitWithARemedy) {
  expect_limit([] { return Time::max() + Time::from_ps(1); });
  expect_limit([] { return Time::from_ps(-2) - Time::max(); });
  // 2^63 ps are 9223372.036854775808 s: the double below them is a time, they are not.
  expect_limit([] { return Time::from_seconds(9223372.036854776); });
  expect_limit([] { return Time::from_seconds(-1e300); });
  EXPECT_GT(Time::from_seconds(9223372.0).ps(), 9'223'371'999'000'000'000);
  EXPECT_EQ((Time::from_ps(-1) - Time::max()).ps(), std::numeric_limits<std::int64_t>::min());
}

TEST(TimeDeathTest, ADurationThatIsNoNumberIsABug) {
  EXPECT_DEATH(static_cast<void>(Time::from_seconds(std::nan(""))), "a duration of nan s");
  EXPECT_DEATH(static_cast<void>(Time::from_seconds(std::numeric_limits<double>::infinity())), "a duration of inf s");
}

}  // namespace
}  // namespace longhaul
