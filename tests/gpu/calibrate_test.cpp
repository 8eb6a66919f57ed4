// The CUDA side of `longhaul calibrate`: samples, clocks, noise, and one call of each class through the whole loop.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "tests/gpu/device.h"
#include "validate/gpu/calibrate/measuring_loop.h"
#include "validate/gpu/calibrate/plan.h"
#include "validate/gpu/call_timer.h"
#include "validate/gpu/cuda_bench.h"
#include "validate/gpu/power_state.h"

namespace longhaul {
namespace {

constexpr std::int64_t kPoolBytes = std::int64_t{4} << 30;

using CallTimerTest = GpuTest<>;

double default_clock_mhz() {
  int khz = 0;
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  return khz / 1e3;
}

// 512 MB of writes take 0.1 ms at 5 TB/s and 10 ms at 50 GB/s: nothing else is a GPU of ours.
TEST_F(CallTimerTest, TimesAMemsetAndItsClock) {
  CallTimer timer;
  DeviceBuffer<std::byte> data(std::size_t{512} << 20);
  const auto clear = [&] { LH_CUDA_CHECK(cudaMemsetAsync(data.data(), 0, data.size_bytes(), timer.stream())); };
  clear();
  LH_CUDA_CHECK(cudaStreamSynchronize(timer.stream()));
  const Sample cold = timer.cold(clear);
  EXPECT_GT(cold.ms, 0.08);
  EXPECT_LT(cold.ms, 10);
  EXPECT_GT(cold.clock_mhz, 0.2 * default_clock_mhz());
  EXPECT_LT(cold.clock_mhz, 1.1 * default_clock_mhz());
  const Sample batch = timer.batch(clear, 20);
  EXPECT_NEAR(batch.ms, cold.ms, 0.5 * cold.ms);
  EXPECT_GT(batch.clock_mhz, 0.2 * default_clock_mhz());
}

// An empty kernel is far below a launch of any host, and a launch below a tenth of a millisecond.
TEST_F(CallTimerTest, KeepsLaunchesOutOfSamples) {
  CallTimer timer;
  const double launch_ms = timer.launch_ms();
  EXPECT_GT(launch_ms, 1e-4);
  EXPECT_LT(launch_ms, 0.1);
  // 60 launches of the host are not in the sample of 60 empty kernels: 1 to 3 us each on the device.
  const Sample batch = timer.batch([&] { timer.enqueue_empty(); }, 60);
  EXPECT_LT(batch.ms, 5e-3);
}

TEST_F(CallTimerTest, GoesOnAfterACallThatThrows) {
  CallTimer timer;
  EXPECT_THROW(timer.cold([] { throw std::runtime_error("no call"); }), std::runtime_error);
  EXPECT_GT(timer.cold([&] { timer.enqueue_empty(); }).ms, 0);
}

TEST_F(CallTimerTest, NoiseIsFiniteInBothTypes) {
  Stream stream;
  DeviceBuffer<Bf16> data(1'000'001);
  data.poison(stream.get());
  fill_with_noise(data.data(), data.size(), 3, stream.get());
  double sum = 0;
  for (const Bf16 value : data.download(stream.get())) {
    const float x = to_float(value);
    ASSERT_TRUE(x >= -1 && x <= 1);
    sum += static_cast<double>(x);
  }
  EXPECT_NEAR(sum / 1e6, 0, 0.005);  // mean of 10^6 uniform numbers: 0.0006 a deviation
}

class CudaBenchTest : public GpuTest<> {
 protected:
  static LoopLimits short_limits() {
    LoopLimits limits;
    limits.fewest_samples = 3;
    limits.least_seconds = 0;
    limits.most_seconds = 0.1;
    limits.batch_seconds = 0.005;
    return limits;
  }
};

TEST_F(CudaBenchTest, MeasuresACallOfEachClassAndKernel) {
  CudaBench bench({1, kPoolBytes, std::int64_t{1} << 30, {}});
  std::vector<CalibrationCall> calls;
  for (const char* name : {"gemm", "attention", "varlen", "diffusion", "copy", "launch", "elementwise"}) {
    std::vector<CalibrationCall> of_class = calls_of_class(parse_classes({name}, "")->front());
    const std::size_t count = std::string(name) == "elementwise" ? elementwise_kernels().size() : 3;
    for (std::size_t i = 0; i < std::min(count, of_class.size()); ++i) {
      if (operand_bytes(of_class[i]) <= kPoolBytes) calls.push_back(of_class[i]);
    }
  }
  EXPECT_GE(calls.size(), 20U);
  for (const CalibrationCall& call : calls) {
    const PreparedCall prepared = bench.prepare(call);
    const Measurement measured = measure(*prepared.stopwatch, short_limits());
    EXPECT_FALSE(prepared.implementation.empty()) << describe(call);
    EXPECT_GT(measured.ms.median, 0) << describe(call);
    EXPECT_TRUE(std::isfinite(measured.ms.max)) << describe(call);
    EXPECT_GT(measured.batch_ms, 0) << describe(call);
  }
}

TEST_F(CudaBenchTest, RefusesWhatTheLibrariesCannot) {
  CudaBench bench({1, std::int64_t{64} << 20, 0, {}});
  CalibrationCall call = calls_of_class(CallClass::kAttention).front();
  call.head_dim = 96;
  EXPECT_THROW(bench.prepare(call), UnsupportedCall);
  // More than the pool: left out, not a fault.
  CalibrationCall large = calls_of_class(CallClass::kCopy).front();
  large.pass = "d2d";
  large.bytes = std::int64_t{8} << 30;
  EXPECT_THROW(bench.prepare(large), UnsupportedCall);
  EXPECT_GT(measure(*bench.prepare(calls_of_class(CallClass::kLaunch).front()).stopwatch, short_limits()).ms.median, 0);
}

TEST_F(CudaBenchTest, SaysWhatItIs) {
  const CudaBench bench({1, kPoolBytes, 0, {}});
  std::string text;
  for (const std::string& line : bench.identity()) text += line + "\n";
  for (const std::string& line : bench.notes()) text += line + "\n";
  for (const char* part : {"source: longhaul calibrate 0.", "device: 1 x ",
                           "driver: ", "NCCL: ", "libraries: cuBLASLt ", "date: 20", "default clock: "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_FALSE(power_lines(0).empty());
  EXPECT_GT(bench.default_clock_mhz(), 500);
}

}  // namespace
}  // namespace longhaul
