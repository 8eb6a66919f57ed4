// The parts of kernels/ that need no GPU: bfloat16 rounding and the reference product.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/gemm/gemm_reference.h"

namespace longhaul {
namespace {

std::uint16_t bits(float value) { return to_bf16(value).bits; }

// One unit in the last place of a bf16 near 1 is 2^-7; halves between two go to the even one.
TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bits(1.0F), 0x3F80);
  EXPECT_EQ(bits(1.0F + 0x1p-8F), 0x3F80);             // half-way, down to even
  EXPECT_EQ(bits(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);  // above half-way
  EXPECT_EQ(bits(1.0F + 0x1p-7F + 0x1p-8F), 0x3F82);   // half-way, up to even
  EXPECT_EQ(bits(-1.0F), 0xBF80);
  EXPECT_EQ(bits(std::numeric_limits<float>::max()), 0x7F80);  // overflows to infinity
  EXPECT_EQ(bits(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(bits(0x1p-133F), 0x0001);  // the smallest denormal
  EXPECT_EQ(bits(-0.0F), 0x8000);
}

TEST(Bf16, KeepsNaN) {
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001U)))));  // its set bit is cut off
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t i = 0; i < (1U << 16); ++i) {
    const Bf16 value{static_cast<std::uint16_t>(i)};
    if (std::isnan(to_float(value))) continue;
    ASSERT_EQ(to_bf16(to_float(value)).bits, value.bits) << i;
  }
}

std::vector<Bf16> matrix(std::initializer_list<float> values) {
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(to_bf16(value));
  return result;
}

// [1 2 3; 4 5 6] [7 8; 9 10; -1 2] = [1*7+2*9-3, 1*8+2*10+6; 28+45-6, 32+50+12] = [22 34; 67 94].
// Magnitudes: the same with |-1|: [28 34; 79 94].
const std::vector<double> kProduct = {22, 34, 67, 94};
const std::vector<double> kMagnitude = {28, 34, 79, 94};

TEST(GemmReference, MultipliesInEveryTransposition) {
  const auto a = matrix({1, 2, 3, 4, 5, 6});
  const auto a_transposed = matrix({1, 4, 2, 5, 3, 6});
  const auto b = matrix({7, 8, 9, 10, -1, 2});
  const auto b_transposed = matrix({7, 9, -1, 8, 10, 2});
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const GemmReference result = gemm_reference(tight_gemm(2, 2, 3, transpose_a, transpose_b),
                                                  transpose_a ? a_transposed : a, transpose_b ? b_transposed : b);
      EXPECT_EQ(result.value, kProduct) << transpose_a << transpose_b;
      EXPECT_EQ(result.magnitude, kMagnitude) << transpose_a << transpose_b;
    }
  }
}

TEST(GemmReference, SkipsThePaddingOfRows) {
  GemmProblem problem = tight_gemm(2, 2, 3, false, false);
  problem.a_stride = 4;
  problem.b_stride = 3;
  EXPECT_EQ(gemm_reference(problem, matrix({1, 2, 3, 99, 4, 5, 6}), matrix({7, 8, 99, 9, 10, 99, -1, 2})).value,
            kProduct);
}

TEST(GemmReference, RefusesWhatDoesNotFit) {
  const auto a = matrix({1, 2, 3, 4, 5, 6});
  EXPECT_THROW(gemm_reference(tight_gemm(2, 2, 4, false, false), a, a), std::invalid_argument);
  EXPECT_THROW(gemm_reference(tight_gemm(0, 2, 3, false, false), a, a), std::invalid_argument);
  GemmProblem problem = tight_gemm(2, 2, 3, false, false);
  problem.b_stride = 1;
  EXPECT_THROW(gemm_reference(problem, a, a), std::invalid_argument);
}

TEST(GemmProblem, PassesOfALinearLayerHaveTheirTransposes) {
  // 10 tokens, 4 inputs, 6 outputs; W is stored 6 x 4.
  const GemmProblem forward = forward_gemm(10, 6, 4);
  EXPECT_EQ(forward.b_rows(), 6);
  EXPECT_EQ(forward.b_columns(), 4);
  const GemmProblem input = backward_input_gemm(10, 4, 6);
  EXPECT_EQ(input.b_rows(), 6);
  EXPECT_EQ(input.b_columns(), 4);
  const GemmProblem weight = backward_weight_gemm(6, 4, 10);
  EXPECT_EQ(weight.a_rows(), 10);
  EXPECT_EQ(weight.a_columns(), 6);
  EXPECT_EQ(weight.b_rows(), 10);
  EXPECT_EQ(weight.b_columns(), 4);
}

}  // namespace
}  // namespace longhaul
