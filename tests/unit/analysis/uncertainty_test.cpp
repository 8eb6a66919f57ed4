// Intervals of steps and of ratios against arithmetic by hand.
#include "sim/analysis/uncertainty.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/cost/sample_calibration.h"

namespace longhaul {
namespace {

constexpr auto kGemm = static_cast<std::size_t>(KernelKind::kGemm);
constexpr auto kCopy = static_cast<std::size_t>(KernelKind::kCopyDeviceToDevice);

Time milliseconds(double value) { return Time::from_seconds(value * 1e-3); }

RankTotals gemm_rank() {
  RankTotals rank;
  rank.kernel_kind[kGemm] = milliseconds(24);
  rank.kernel_below[kGemm] = milliseconds(1.2);
  rank.kernel_above[kGemm] = milliseconds(2.4);
  return rank;
}

// GEMM 24 ms, -1.2 and +2.4; 8 ms of waits err in proportion: a third more. 6 ms of communication err by a quarter: 1.5
// either way; contention of 4 ms by -37.5 % and +50 % (the sample's): 1.5 and 2. Quadrature.
TEST(Uncertainty, ClassesMakeAnIntervalInQuadrature) {
  const KernelModel kernels = sample_model(sample_device("sample"));
  RankTotals rank = gemm_rank();
  rank.bubble = milliseconds(7);
  rank.imbalance = milliseconds(1);
  rank.exposed_communication = milliseconds(6);
  rank.contention = milliseconds(4);
  const ErrorWidths widths = error_widths(rank, kernels, 0.25);
  EXPECT_NEAR(widths.below[kGemm], 1.6e-3, 1e-12);
  EXPECT_NEAR(widths.above[kGemm], 3.2e-3, 1e-12);
  const Ends ends = interval(milliseconds(46), widths);
  EXPECT_NEAR(ends.low.ms(), 46 - std::sqrt(1.6 * 1.6 + 1.5 * 1.5 + 1.5 * 1.5), 1e-6);
  EXPECT_NEAR(ends.high.ms(), 46 + std::sqrt(3.2 * 3.2 + 2.0 * 2.0 + 1.5 * 1.5), 1e-6);
}

TEST(Uncertainty, AnIntervalNeverGoesBelowZero) {
  ErrorWidths widths;
  widths.below[kGemm] = 2;
  EXPECT_EQ(interval(milliseconds(1), widths).low, Time::zero());
}

// A of 10 ms, 9 of them GEMM with 10 % up, 5 % down, and 1 ms of copies with 20 % either way; B of 8 ms, 5 of GEMM, 3
// of copies. GEMM slower: +0.9 / 10 - 0.5 / 8 = 0.0275; faster: -(0.45 / 10 - 0.25 / 8) = -0.01375. Copies slower:
// 0.2 / 10 - 0.6 / 8 = -0.055, faster +0.055.
TEST(Uncertainty, RatiosKeepWhatTheStepsDoNotShare) {
  ErrorWidths a;
  a.above[kGemm] = 0.9e-3;
  a.below[kGemm] = 0.45e-3;
  a.above[kCopy] = a.below[kCopy] = 0.2e-3;
  ErrorWidths b;
  b.above[kGemm] = 0.5e-3;
  b.below[kGemm] = 0.25e-3;
  b.above[kCopy] = b.below[kCopy] = 0.6e-3;
  const Ratio ratio = ratio_of(milliseconds(10), a, milliseconds(8), b);
  EXPECT_NEAR(ratio.value, 1.25, 1e-12);
  EXPECT_NEAR(ratio.high, 1.25 * (1 + std::hypot(0.0275, 0.055)), 1e-12);
  EXPECT_NEAR(ratio.low, 1.25 * (1 - std::hypot(0.01375, 0.055)), 1e-12);
}

// Two steps of 10 and 5 ms, all attention with 10 % up and 5 % down. Of one library the ratio is certain; of two it may
// be over by one's 10 % up and the other's 5 % down, and under by the reverse.
TEST(Uncertainty, AttentionOfTwoLibrariesSharesNothing) {
  constexpr auto kAttention = static_cast<std::size_t>(KernelKind::kAttentionForwardRagged);
  ErrorWidths a, b;
  a.above[kAttention] = 1e-3;
  a.below[kAttention] = 0.5e-3;
  b.above[kAttention] = 0.5e-3;
  b.below[kAttention] = 0.25e-3;
  EXPECT_NEAR(ratio_of(milliseconds(10), a, milliseconds(5), b).high, 2, 1e-12);
  const Ratio apart = ratio_of(milliseconds(10), a, milliseconds(5), b, AttentionErrors::kApart);
  EXPECT_NEAR(apart.high, 2 * (1 + std::hypot(0.1, 0.05)), 1e-12);
  EXPECT_NEAR(apart.low, 2 * (1 - std::hypot(0.05, 0.1)), 1e-12);
}

}  // namespace
}  // namespace longhaul
