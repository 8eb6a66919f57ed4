// Medians, ratios and their intervals against counts that can be done by hand.
#include "validate/report/repeats.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/core/rng.h"

namespace longhaul {
namespace {

TEST(MedianInterval, OrderStatisticsOfTheSignTest) {
  // n = 10: P(B <= 1) = 11/1024 = 0.0107 <= 0.025 and P(B <= 2) = 56/1024 = 0.0547 > 0.025: the 2nd and the 9th.
  const std::vector<double> ten = {5, 1, 4, 2, 3, 10, 9, 8, 7, 6};
  const MedianInterval of = median_interval(ten, 0.95);
  EXPECT_TRUE(of.bounded);
  EXPECT_EQ(of.median, 5.5);
  EXPECT_EQ(of.low, 2);
  EXPECT_EQ(of.high, 9);
}

TEST(MedianInterval, SixIsTheLeastThatBoundsAtNinetyFive) {
  // P(B <= 0) = 2^-n <= 0.025 from n = 6 on (1/64 = 0.0156; 1/32 = 0.031).
  const std::vector<double> six = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(median_interval(six, 0.95).bounded);
  const MedianInterval five = median_interval(std::vector<double>{1, 2, 3, 4, 5}, 0.95);
  EXPECT_FALSE(five.bounded);
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_EQ(median_interval(std::vector<double>{7}, 0.95).median, 7);
}

TEST(MedianInterval, OneOutlierMovesNothing) {
  std::vector<double> values = {1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8};
  const MedianInterval before = median_interval(values, 0.95);
  values.back() = 1e9;
  const MedianInterval after = median_interval(values, 0.95);
  EXPECT_EQ(before.median, after.median);
  EXPECT_EQ(before.high, after.high);  // the 8th of 9: P(B <= 1) = 10/512 = 0.0195
}

TEST(MannWhitney, BoundsOfSmallCounts) {
  // n = m = 3: counts 0..9 have 1, 1, 2, 3, 3, 3, 3, 2, 1, 1 of 20 orders. P(U < 1) = 0.05, P(U < 2) = 0.10.
  EXPECT_EQ(mann_whitney_bound(3, 3, 0.049), 0U);
  EXPECT_EQ(mann_whitney_bound(3, 3, 0.051), 1U);
  EXPECT_EQ(mann_whitney_bound(3, 3, 0.11), 2U);
  EXPECT_EQ(mann_whitney_bound(3, 3, 0.21), 3U);
  // Tables of the test, two-sided 5 %: critical U for 10 and 10 is 23, so P(U <= 23) <= 0.025 and the bound is 24.
  EXPECT_EQ(mann_whitney_bound(10, 10, 0.025), 24U);
  EXPECT_EQ(mann_whitney_bound(5, 8, 0.025), 7U);      // critical U 6
  EXPECT_EQ(mann_whitney_bound(20, 20, 0.025), 128U);  // critical U 127
}

TEST(MannWhitney, TheGatesNeedEightRepeats) {
  // The least count is one order of C(2n, n): 1/3432 for 7, 1/12870 = 7.8e-5 for 8.
  EXPECT_EQ(mann_whitney_bound(7, 7, 1e-4), 0U);
  EXPECT_GT(mann_whitney_bound(8, 8, 1e-4), 0U);
}

TEST(MannWhitney, TheApproximationContinuesTheExactBound) {
  // 30 x 30 pairs are counted, 31 x 30 are not. Bounds grow with the pairs, and the approximation errs by a few counts.
  const auto exact = static_cast<double>(mann_whitney_bound(30, 30, 1e-4));
  const auto approximate = static_cast<double>(mann_whitney_bound(31, 30, 1e-4));
  EXPECT_NEAR(approximate / exact, 31.0 / 30, 0.03);
}

TEST(RatioInterval, CentreAndEnds) {
  const std::vector<double> before = {1, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<double> now = {2, 2, 2, 2, 2, 2, 2, 2};
  const RatioInterval of = ratio_interval(now, before, 0.9998);
  EXPECT_TRUE(of.bounded);
  EXPECT_EQ(of.ratio, 2);
  EXPECT_EQ(of.low, 2);
  EXPECT_EQ(of.high, 2);
  EXPECT_FALSE(ratio_interval(std::vector<double>{2}, before, 0.9998).bounded);
}

// The interval holds the true ratio as often as it says, whatever the distribution: here a skewed one.
TEST(RatioInterval, CoversTheTruth) {
  Rng rng(1, "coverage");
  const auto skewed = [&] {
    const double u = rng.uniform();
    return 1 + u * u * u;
  };
  int outside = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> before, now;
    for (int i = 0; i < 12; ++i) before.push_back(skewed());
    for (int i = 0; i < 12; ++i) now.push_back(1.5 * skewed());
    const RatioInterval of = ratio_interval(now, before, 0.95);
    outside += of.low > 1.5 || of.high < 1.5 ? 1 : 0;
  }
  // 5 % at most; 2000 trials at 5 % have a deviation of 9.7.
  EXPECT_LT(outside, 100 + 3 * 10);
  EXPECT_GT(outside, 30);  // and it is no wider than it must be
}

}  // namespace
}  // namespace longhaul
