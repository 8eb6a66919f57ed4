// The double-precision references of the memory-bound kernels: gradients against differences of the forward pass,
// closed forms for the rest.

#include "kernels/elementwise/elementwise_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace longhaul {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

Doubles random_doubles(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Doubles values(size);
  for (double& value : values) value = static_cast<double>(random()) * 0x1p-31 - 1;
  return values;
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d/dx of `loss` by central differences: error about h^2 = 1e-10 and rounding 1e-16 / h = 1e-11.
Doubles differences(const Doubles& x, const std::function<double(const Doubles&)>& loss) {
  constexpr double kStep = 1e-5;
  Doubles result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Doubles up = x, down = x;
    up[i] += kStep;
    down[i] -= kStep;
    result.push_back((loss(up) - loss(down)) / (2 * kStep));
  }
  return result;
}

void expect_near(const Doubles& got, const Doubles& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

// Rows (3, 4) and (0, 0) with epsilon 0.5: mean squares 12.5 and 0.
TEST(RmsNormReference, ClosedForm) {
  const RmsNormReference result = rms_norm_reference({3, 4, 0, 0}, {2, 1}, {0, 0, 0, 0}, 0.5);
  expect_near(result.r, {1 / std::sqrt(13.0), std::sqrt(2.0)}, 1e-15);
  expect_near(result.y, {6 / std::sqrt(13.0), 4 / std::sqrt(13.0), 0, 0}, 1e-15);
}

TEST(RmsNormReference, GradientsAreDerivatives) {
  const Doubles x = random_doubles(15, 1), w = random_doubles(5, 2), dy = random_doubles(15, 3);
  const RmsNormReference result = rms_norm_reference(x, w, dy, 1e-3);
  expect_near(result.dx,
              differences(x, [&](const Doubles& at) { return dot(rms_norm_reference(at, w, dy, 1e-3).y, dy); }), 1e-8);
  expect_near(result.dw,
              differences(w, [&](const Doubles& at) { return dot(rms_norm_reference(x, at, dy, 1e-3).y, dy); }), 1e-8);
}

TEST(SwigluReference, GradientsAreDerivatives) {
  const Doubles gate = random_doubles(9, 1), up = random_doubles(9, 2), dy = random_doubles(9, 3);
  const SwigluReference result = swiglu_reference(gate, up, dy);
  EXPECT_NEAR(swiglu_reference({1}, {2}, {0}).y[0], 2 / (1 + std::exp(-1.0)), 1e-15);
  expect_near(result.dgate,
              differences(gate, [&](const Doubles& at) { return dot(swiglu_reference(at, up, dy).y, dy); }), 1e-8);
  expect_near(result.dup, differences(up, [&](const Doubles& at) { return dot(swiglu_reference(gate, at, dy).y, dy); }),
              1e-8);
}

// A quarter turn takes (a, b) to (-b, a); two tokens, one head of 2 elements.
TEST(RopeReference, TurnsByPositionTimesFrequency) {
  const double quarter = std::acos(0.0);
  expect_near(rope_reference({1, 2, 1, 2}, {quarter}, {1, 2}, 1, false), {-2, 1, -1, -2}, 1e-15);
  expect_near(rope_reference({1, 2, 1, 2}, {quarter}, {1, 2}, 1, true), {2, -1, -1, -2}, 1e-15);
}

TEST(RopeReference, InverseTurnsBack) {
  const Doubles x = random_doubles(2 * 3 * 8, 1);
  const std::vector<double> frequencies = {1, 0.1, 0.01, 0.001};
  const std::vector<std::int32_t> positions = {5, 131071};
  const Doubles turned = rope_reference(x, frequencies, positions, 3, false);
  EXPECT_GT(std::abs(turned[0] - x[0]), 1e-3);
  expect_near(rope_reference(turned, frequencies, positions, 3, true), x, 1e-14);
}

// Two equal logits: loss log 2, gradient (1/2 - 1, 1/2) scale.
TEST(CrossEntropyReference, ClosedFormAndIgnoredTokens) {
  const CrossEntropyReference result = cross_entropy_reference({7, 7, 1, 2}, {0, -100}, 4);
  expect_near(result.loss, {std::log(2.0), 0}, 1e-15);
  expect_near(result.gradient, {-2, 2, 0, 0}, 1e-14);
}

TEST(CrossEntropyReference, GradientsAreDerivatives) {
  const Doubles logits = random_doubles(12, 1);
  const std::vector<std::int32_t> targets = {2, 0, 3};
  expect_near(cross_entropy_reference(logits, targets, 0.5).gradient,
              differences(logits,
                          [&](const Doubles& at) {
                            const Doubles loss = cross_entropy_reference(at, targets, 0.5).loss;
                            return 0.5 * (loss[0] + loss[1] + loss[2]);
                          }),
              1e-8);
}

// At the first step the corrected moments are g and g^2: w moves by lr sign(g), after decay.
TEST(AdamwReference, FirstStepMovesByTheLearningRate) {
  const AdamwReference result = adamw_reference({1, -2}, {0, 0}, {0, 0}, {0.5, -3}, 0.1, 0.9, 0.99, 0, 0.5, 1);
  expect_near(result.w, {1 - 0.05 - 0.1, -2 + 0.1 + 0.1}, 1e-14);
  expect_near(result.m, {0.05, -0.3}, 1e-15);
  expect_near(result.v, {0.0025, 0.09}, 1e-15);
}

// Attention over keys {1, 2} and {3} merged is attention over all three.
TEST(MergeReference, MergesToAttentionOverAllKeys) {
  const Doubles scores = {0.3, -1.2, 2.5}, values = {1, -4, 7};
  const double a = std::exp(scores[0]) + std::exp(scores[1]);
  const double o_a = (std::exp(scores[0]) * values[0] + std::exp(scores[1]) * values[1]) / a;
  const double all = a + std::exp(scores[2]);
  const double expected = (a * o_a + std::exp(scores[2]) * values[2]) / all;
  const MergeReference result = merge_reference({o_a}, {std::log(a)}, {values[2]}, {scores[2]});
  expect_near(result.o, {expected}, 1e-14);
  expect_near(result.l, {std::log(all)}, 1e-14);
}

TEST(MergeReference, RowsWithoutKeysDoNotCount) {
  const double nan = std::nan("");
  const MergeReference result =
      merge_reference({nan, 5, nan}, {kNothing, 1, kNothing}, {3, nan, nan}, {2, kNothing, kNothing});
  EXPECT_EQ(result.o, (Doubles{3, 5, 0}));
  EXPECT_EQ(result.l, (Doubles{2, 1, kNothing}));
}

// A row of NaN is no row without keys, on either side and beside either kind.
TEST(MergeReference, NanStays) {
  const double nan = std::nan("");
  const MergeReference result =
      merge_reference({1, nan, 0, nan}, {1, nan, kNothing, nan}, {nan, 2, nan, 0}, {nan, 2, nan, kNothing});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(result.o[i]) && std::isnan(result.l[i])) << i;
}

}  // namespace
}  // namespace longhaul
