// Small parts of `longhaul calibrate`: the clock from two probes, the time that is left, which device a GPU is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "validate/gpu/calibrate/clock_probe.h"
#include "validate/gpu/calibrate/device_of_gpu.h"
#include "validate/gpu/calibrate/time_left.h"

namespace longhaul {
namespace {

// 198,000 cycles in 100 us are 1,980 MHz; 147,000 are 1,470.
TEST(ClockProbe, IsTheMedianOverMultiprocessors) {
  const std::vector<ClockReading> before = {{7, 1000, 5000}, {7, 2000, 5000}, {7, 0, 5000}};
  const std::vector<ClockReading> after = {{7, 199'000, 105'000}, {7, 149'000, 105'000}, {7, 198'000, 105'000}};
  EXPECT_DOUBLE_EQ(clock_between(before, after, 7), 1980);
}

TEST(ClockProbe, LeavesOutWhatOneProbeDidNotMeet) {
  const std::vector<ClockReading> before = {{6, 1000, 5000}, {7, 2000, 5000}, {7, 0, 5000}};
  const std::vector<ClockReading> after = {{7, 199'000, 105'000}, {7, 149'000, 105'000}, {6, 198'000, 105'000}};
  EXPECT_DOUBLE_EQ(clock_between(before, after, 7), 1470);
  EXPECT_EQ(clock_between(before, after, 8), 0);
}

// 39,999 ns are too short to tell; a counter that goes back is another multiprocessor's.
TEST(ClockProbe, DoesNotGuess) {
  const std::vector<ClockReading> before = {{1, 0, 0}};
  EXPECT_EQ(clock_between(before, std::vector<ClockReading>{{1, 79'998, 39'999}}, 1), 0);
  EXPECT_DOUBLE_EQ(clock_between(before, std::vector<ClockReading>{{1, 80'000, 40'000}}, 1), 2000);
  EXPECT_EQ(clock_between(std::vector<ClockReading>{{1, 90'000, 0}}, std::vector<ClockReading>{{1, 80'000, 50'000}}, 1),
            0);
}

TEST(TimeLeft, FollowsThePredictionThenTheRun) {
  EXPECT_EQ(time_left(100, 100, 0), 100);
  EXPECT_EQ(time_left(100, 96, 60), 96);  // 4 % done: too early to judge
  // 50 done in 100 s: twice as slow as predicted.
  EXPECT_EQ(time_left(100, 50, 100), 100);
  EXPECT_EQ(time_left(100, -1e-9, 100), 0);
}

TEST(DeviceOfGpu, TakesTheLongestName) {
  const std::vector<std::string> shipped = shipped_devices(data_directory());
  EXPECT_EQ(device_of_gpu("NVIDIA H200", shipped), "h200");
  EXPECT_EQ(device_of_gpu("GPU 0 (H200)", shipped), "h200");
  EXPECT_EQ(device_of_gpu("NVIDIA H100 80GB HBM3", shipped), "h100");
  EXPECT_EQ(device_of_gpu("NVIDIA A100-SXM4-80GB", shipped), "a100-80gb");
  EXPECT_EQ(device_of_gpu("NVIDIA A100-SXM4-40GB", shipped), "a100-40gb");
  EXPECT_EQ(device_of_gpu("NVIDIA GB200", shipped), "gb200");
  EXPECT_EQ(device_of_gpu("NVIDIA GeForce RTX 4090", shipped), std::nullopt);
}

}  // namespace
}  // namespace longhaul
