#include "sim/scenario/layout_check.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

StrategyEntry entry() {
  StrategyEntry value;
  value.name = "flashcp";
  value.label = "flash";
  value.file = "study.json";
  value.path = "/strategies/2";
  return value;
}

TEST(DegreesError, ProductMustBeTheGpus) {
  EXPECT_FALSE(degrees_error({.pp = 2, .sp = 4, .dp = 2}, 16, entry()));
  const auto fault = degrees_error({.pp = 2, .sp = 4, .dp = 3}, 16, entry());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->to_string(),
            "study.json: /strategies/2: the layout of \"flash\", tp 1 x pp 2 x cp 1 x sp 4 x dp 3, makes 24 ranks; "
            "expected degrees that multiply to the 16 GPUs");
}

TEST(FillError, NamesTheNearestCounts) {
  EXPECT_FALSE(fill_error(16, 4, 2, entry()));
  EXPECT_EQ(
      fill_error(20, 4, 2, entry())->to_string(),
      "study.json: /strategies/2: 20 sequences do not fill dp 4 x micro-batches of 2 for \"flash\"; expected 16 or "
      "24 sequences");
  EXPECT_EQ(fill_error(5, 4, 2, entry())->expected, "8 sequences");
  EXPECT_EQ(fill_error(0, 1, 1, entry())->expected, "1 sequences");
}

TEST(FillErrorDeathTest, DegreeOfZeroIsABug) { EXPECT_DEATH(fill_error(4, 0, 1, entry()), "dp 0, micro-batch 1"); }

}  // namespace
}  // namespace longhaul
