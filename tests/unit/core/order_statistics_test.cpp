#include "sim/core/order_statistics.h"

#include <gtest/gtest.h>

#include "sim/core/integers.h"

namespace longhaul {
namespace {

TEST(OrderStatistics, MedianIsTheMiddleOrTheMeanOfBoth) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 5}), 4.5);
}

// Of ten values, nine are at most the ninth; of eleven, 0.9 of them are 9.9 values, so the tenth.
TEST(OrderStatistics, NearestRankCountsUpToThePart) {
  std::vector<double> values{10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(nearest_rank(values, 0.9), 9);
  EXPECT_EQ(nearest_rank(values, 1), 10);
  EXPECT_EQ(nearest_rank(values, 0.05), 1);
  values.push_back(11);
  EXPECT_EQ(nearest_rank(values, 0.9), 10);
}

TEST(OrderStatistics, QuantileIsLinearBetweenValues) {
  EXPECT_EQ(quantile({30, 10, 20}, 0), 10);
  EXPECT_EQ(quantile({30, 10, 20}, 0.75), 25);
  EXPECT_EQ(quantile({30, 10, 20}, 1), 30);
}

TEST(OrderStatisticsDeathTest, NoValuesAreABug) {
  EXPECT_DEATH(static_cast<void>(median({})), "the median of no values");
  EXPECT_DEATH(static_cast<void>(nearest_rank({}, 0.5)), "nearest rank 0.5 of 0 values");
  EXPECT_DEATH(static_cast<void>(nearest_rank({1}, 0)), "nearest rank 0 of 1 values");
  EXPECT_DEATH(static_cast<void>(quantile({}, 0.5)), "quantile 0.5 of 0 values");
}

TEST(Integers, CeilDivCountsTheLastPart) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
}

}  // namespace
}  // namespace longhaul
