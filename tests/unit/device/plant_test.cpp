// A slow-down that is planted in one kernel, on a device whose clock is known, and the gate that must find it.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/core/mix.h"
#include "tests/unit/device/device_case.h"
#include "validate/device/device_executor.h"
#include "validate/device/host_device.h"
#include "validate/report/gates.h"

namespace longhaul {
namespace {

// 10 us a call, and 1 % noise (uniform in +- 1.7 %) that depends on `seed` and the call's number.
RunRecord timed(const std::string& plant, double share, std::uint64_t seed, int repeats) {
  DeviceCase of;
  of.strategy = "flashcp";
  of.ranks = 2;
  const auto schedule = schedule_of(of);
  const DevicePlan plan(*schedule);
  HostDeviceOptions options;
  std::uint64_t calls = 0;
  options.clock = [&](const DeviceCall&) {
    const double unit = static_cast<double>(mix(seed * 1'000'003 + ++calls) >> 11) * 0x1.0p-52 - 1.0;
    return std::llround(1e7 * (1 + 0.017 * unit));
  };
  HostDevice device(options);
  VirtualTransport transport;
  ExecutorOptions executor;
  executor.warmups = 0;
  executor.repeats = repeats;
  executor.plant = {plant, share};
  RunRecord record = run_on_devices(plan, std::vector<Device*>(2, &device), transport, executor, StepWish{}, nullptr);
  EXPECT_EQ(record.failure.kind, "") << record.failure.message;
  return record;
}

std::vector<std::string> failures(const RunRecord& now, const RunRecord& before) {
  GateReport report;
  gate_slowdown(now, before, kDefaultMaxSlowdown, report);
  std::vector<std::string> names;
  for (const GateCheck& check : report.checks) {
    if (check.verdict == Verdict::kFail) names.push_back(check.name);
  }
  return names;
}

TEST(Plant, EightPercentInOneKernelFailAndAreNamed) {
  const RunRecord before = timed("", 0, 1, 20);
  EXPECT_EQ(failures(timed("gate_up (forward)", 0.08, 2, 20), before), std::vector<std::string>{"gate_up (forward)"});
}

TEST(Plant, ALabelAloneMeansAllItsPasses) {
  const RunRecord before = timed("", 0, 3, 12);
  const std::vector<std::string> found = failures(timed("gate_up", 0.08, 4, 12), before);
  ASSERT_FALSE(found.empty());
  for (const std::string& name : found) EXPECT_EQ(name.rfind("gate_up (", 0), 0U) << name;
}

TEST(Plant, NothingPlantedNothingFound) {
  const RunRecord before = timed("", 0, 5, 12);
  EXPECT_EQ(failures(timed("", 0, 6, 12), before), std::vector<std::string>{});
  EXPECT_EQ(failures(timed("no such kernel", 0.5, 7, 12), before), std::vector<std::string>{});
}

}  // namespace
}  // namespace longhaul
