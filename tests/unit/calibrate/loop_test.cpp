// The measuring loop against scripted devices: when it stops, what it drops, how long it rests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/calibrate/scripted_stopwatch.h"
#include "validate/gpu/calibrate/measuring_loop.h"

namespace longhaul {
namespace {

using testing::Each;
using testing::ElementsAre;

// Exact numbers: 10 samples at least, no least time, 0.3 % of mean error.
LoopLimits limits() {
  LoopLimits limits;
  limits.fewest_samples = 10;
  limits.most_samples = 100;
  limits.least_seconds = 0;
  limits.most_seconds = 0.5;
  limits.default_clock_mhz = 2000;
  limits.throttle_ratio = 0.7;
  limits.most_drops = 4;
  limits.first_rest_seconds = 0.01;
  limits.longest_rest_seconds = 0.03;
  limits.batch_seconds = 0.04;
  return limits;
}

TEST(Noise, DeviationAndMeanErrorAreTheTextbooks) {
  const std::vector<double> samples = {1, 2, 3, 4};
  // Mean 2.5, squares 2.25 + 0.25 + 0.25 + 2.25 = 5, variance 5 / 3.
  EXPECT_DOUBLE_EQ(relative_deviation(samples), std::sqrt(5.0 / 3) / 2.5);
  EXPECT_DOUBLE_EQ(relative_mean_error(samples), std::sqrt(5.0 / 3) / 2.5 / 2);
}

// Two values, each half: one bit. Four, each a quarter: two. Values within a bin of 0.5 % of the median are one.
TEST(Noise, EntropyCountsModes) {
  EXPECT_DOUBLE_EQ(entropy_bits(std::vector<double>{1, 2, 1, 2}), 1);
  EXPECT_DOUBLE_EQ(entropy_bits(std::vector<double>{1, 2, 3, 4}), 2);
  EXPECT_DOUBLE_EQ(entropy_bits(std::vector<double>{100, 100.1, 99.9, 100}), 0);
}

// Two modes in turn: the deviation stays at a third, the entropy at one bit.
TEST(Noise, EntropyStopsWhereTheDeviationNeverWould) {
  std::vector<double> samples;
  for (int i = 0; i < 40; ++i) samples.push_back(i % 2 == 0 ? 1 : 2);
  EXPECT_FALSE(quiet(samples, {NoiseRule::kMeanError, 0.003, 0}));
  EXPECT_NEAR(entropy_slope(samples), 0, 1e-3);
  EXPECT_TRUE(quiet(samples, {NoiseRule::kEntropy, 0.005, 0}));
  // New modes all the time: entropy rises with the logarithm, over samples 20 to 40 by one bit, 0.05 a sample.
  std::vector<double> rising;
  for (int i = 1; i <= 40; ++i) rising.push_back(i);
  EXPECT_NEAR(entropy_slope(rising), 1.0 / 20, 0.005);
  EXPECT_FALSE(quiet(rising, {NoiseRule::kEntropy, 0.005, 0}));
}

TEST(Noise, FixedCountsSamples) {
  const NoiseLimit three{NoiseRule::kFixed, 0, 3};
  EXPECT_FALSE(quiet(std::vector<double>{1, 9}, three));
  EXPECT_TRUE(quiet(std::vector<double>{1, 9, 2}, three));
  EXPECT_FALSE(quiet(std::vector<double>{1}, {NoiseRule::kMeanError, 1, 0}));
}

TEST(MeasuringLoop, StopsAtTheFewestSamplesOfAQuietCall) {
  ScriptedStopwatch watch({{2, 1900}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kQuiet);
  EXPECT_EQ(result.ms.count, 10U);
  EXPECT_EQ(result.ms.median, 2);
  EXPECT_EQ(result.deviation, 0);
  EXPECT_EQ(result.dropped, 0U);
  EXPECT_EQ(result.clock_mhz, 1900);
}

TEST(MeasuringLoop, GoesOnForTheLeastTime) {
  ScriptedStopwatch watch({{2, 1900}});
  LoopLimits longer = limits();
  longer.least_seconds = 0.05;
  // 25 samples of 2 ms (a rounding of the sum may ask for one more).
  const std::size_t count = measure(watch, longer).ms.count;
  EXPECT_GE(count, 25U);
  EXPECT_LE(count, 26U);
}

// 1 and 1.02 in turn: deviation 1 % (about), so the mean's error is below 0.3 % from (1 / 0.3)^2 = 11.1 samples on:
// by n - 1, sqrt(n / (n - 1)) 0.01 / 1.01 / sqrt(n) = 0.0099 / sqrt(n - 1) <= 0.003 from n = 12 on.
TEST(MeasuringLoop, TakesAsManySamplesAsTheNoiseAsksFor) {
  std::vector<Sample> samples;
  for (int i = 0; i < 100; ++i) samples.push_back({i % 2 == 0 ? 1 : 1.02, 1900});
  ScriptedStopwatch watch(samples);
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kQuiet);
  EXPECT_EQ(result.ms.count, 12U);
  EXPECT_NEAR(result.ms.median, 1.01, 1e-12);
}

std::vector<Sample> noisy() {
  std::vector<Sample> samples;
  for (int i = 0; i < 200; ++i) samples.push_back({i % 2 == 0 ? 1.0 : 3.0, 1900});
  return samples;
}

TEST(MeasuringLoop, StopsAfterTheMostSamples) {
  ScriptedStopwatch watch(noisy());
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kSamples);
  EXPECT_EQ(result.ms.count, 100U);
}

// 2 ms a sample on average and 8 ms beside each: 0.5 s are over after the 50th.
TEST(MeasuringLoop, StopsAfterTheMostTime) {
  ScriptedStopwatch watch(noisy());
  watch.overhead_seconds = 0.00801;
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kTime);
  EXPECT_EQ(result.ms.count, 50U);
}

// A call of 0.7 s: one sample is all there is time for, and it counts.
TEST(MeasuringLoop, OneSampleOfAVeryLongCallCounts) {
  ScriptedStopwatch watch({{700, 1900}}, {{700, 1500}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kTime);
  EXPECT_EQ(result.ms.count, 1U);
  EXPECT_EQ(result.deviation, 0);
  EXPECT_THAT(watch.batch_calls, ElementsAre(2));
}

// Below 0.7 x 2,000 = 1,400 MHz: dropped, with a rest that doubles up to the longest and starts anew after a good one.
TEST(MeasuringLoop, DropsThrottledSamplesAndRests) {
  ScriptedStopwatch watch({{2, 1900}, {5, 1399}, {5, 1300}, {5, 1200}, {2, 1400}, {5, 1000}, {2, 1900}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kQuiet);
  EXPECT_EQ(result.dropped, 4U);
  EXPECT_EQ(result.ms.count, 10U);
  EXPECT_EQ(result.ms.max, 2);
  EXPECT_DOUBLE_EQ(result.clock_mhz, (9 * 1900 + 1400) / 10.0);
  EXPECT_THAT(watch.rests, ElementsAre(0.01, 0.02, 0.03, 0.01));
}

TEST(MeasuringLoop, GivesUpOnAClockThatStaysLow) {
  ScriptedStopwatch watch({{2, 1900}, {2, 1900}, {5, 1000}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.stop, StopReason::kThrottled);
  EXPECT_EQ(result.dropped, 4U);
  EXPECT_EQ(result.ms.count, 2U);  // what was good before
  EXPECT_EQ(result.ms.median, 2);
  ScriptedStopwatch never({{5, 1000}});
  const Measurement all = measure(never, limits());
  EXPECT_EQ(all.stop, StopReason::kThrottled);
  EXPECT_EQ(all.ms.count, 4U);
  EXPECT_EQ(all.ms.median, 5);
  EXPECT_EQ(all.clock_mhz, 1000);
}

// A sample too short to tell its clock, or a device whose default clock nobody knows: nothing is dropped.
TEST(MeasuringLoop, UnknownClocksDropNothing) {
  ScriptedStopwatch watch({{0.005, 0}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(result.dropped, 0U);
  EXPECT_EQ(result.clock_mhz, 0);
  LoopLimits unknown = limits();
  unknown.default_clock_mhz = 0;
  ScriptedStopwatch slow({{2, 300}});
  EXPECT_EQ(measure(slow, unknown).dropped, 0U);
}

// 0.5 ms a call: 80 calls would fill 0.04 s, a batch has at most 64; two batches then, of which the later one counts.
TEST(MeasuringLoop, BatchesFillTheirTime) {
  ScriptedStopwatch watch({{0.5, 1900}}, {{0.40, 1900}, {0.45, 1470}});
  const Measurement result = measure(watch, limits());
  EXPECT_EQ(watch.batch_calls.size(), 2U);
  EXPECT_THAT(watch.batch_calls, Each(64));
  EXPECT_DOUBLE_EQ(result.batch_ms, 0.45);
  EXPECT_EQ(result.batch_clock_mhz, 1470);
}

TEST(MeasuringLoop, NamesItsReasons) {
  EXPECT_STREQ(stop_name(StopReason::kQuiet), "quiet");
  EXPECT_STREQ(stop_name(StopReason::kTime), "time");
  EXPECT_STREQ(stop_name(StopReason::kSamples), "samples");
  EXPECT_STREQ(stop_name(StopReason::kThrottled), "throttled");
}

}  // namespace
}  // namespace longhaul
