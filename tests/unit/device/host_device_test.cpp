// The device on the CPU: streams, events, orders, and how faults of a run are reported.
#include "validate/device/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/device/device_case.h"
#include "validate/device/numerics.h"
#include "validate/device/step_alone.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

// Two floats and a stream each.
class TwoStreams : public testing::TestWithParam<HostOrder> {
 protected:
  TwoStreams()
      : device_(HostDeviceOptions{.order = GetParam(), .failing_kernel = "", .hanging_kernel = "", .clock = {}}) {
    memory_.arena = device_.allocate(64);
    memory_.scratch = {nullptr};
    a_ = device_.make_stream();
    b_ = device_.make_stream();
  }
  void fill(std::int64_t offset, float value, StreamHandle stream) {
    device_.launch(FillRowsCall{{{MemoryPart::kArena, offset}, ElementType::kFp32, 1, 1, 1, kNoIndex}, value}, memory_,
                   0, stream);
  }
  // what = what + from
  void add(std::int64_t from, std::int64_t to, StreamHandle stream) {
    const auto at = [&](std::int64_t offset) {
      return Rows{{MemoryPart::kArena, offset}, ElementType::kFp32, 1, 1, 1, kNoIndex};
    };
    device_.launch(CopyRowsCall{at(from), at(to), true}, memory_, 0, stream);
  }
  float value(std::int64_t offset) {
    float result = 0;
    device_.read(std::as_writable_bytes(std::span<float>(&result, 1)), memory_.arena + offset);
    return result;
  }
  HostDevice device_;
  DeviceArena memory_;
  StreamHandle a_ = -1, b_ = -1;
};

TEST_P(TwoStreams, EventsOrderWhatStreamsDoNot) {
  const EventHandle filled = device_.make_event(false);
  fill(0, 3, a_);
  fill(4, 1, b_);
  device_.record(filled, a_);
  device_.wait(b_, filled);
  add(0, 4, b_);
  device_.synchronize(std::chrono::milliseconds(1));
  EXPECT_EQ(value(4), 4);
}

TEST_P(TwoStreams, AnEventThatNobodyRecordedHoldsNobody) {
  device_.wait(a_, device_.make_event(false));
  fill(0, 2, a_);
  device_.synchronize(std::chrono::milliseconds(1));
  EXPECT_EQ(value(0), 2);
}

INSTANTIATE_TEST_SUITE_P(Orders, TwoStreams,
                         testing::Values(HostOrder::kLaunch, HostOrder::kLowestFirst, HostOrder::kHighestFirst,
                                         HostOrder::kRandom));

TEST(HostDeviceTest, WithoutAWaitTheOrderShows) {
  // b adds before a has written: what a missing wait looks like.
  HostDeviceOptions options;
  options.order = HostOrder::kHighestFirst;
  HostDevice device(options);
  DeviceArena memory;
  memory.arena = device.allocate(64);
  memory.scratch = {nullptr};
  const StreamHandle a = device.make_stream();
  const StreamHandle b = device.make_stream();
  device.fill_bytes(memory.arena, 64, 0);
  const Rows first{{MemoryPart::kArena, 0}, ElementType::kFp32, 1, 1, 1, kNoIndex};
  const Rows second{{MemoryPart::kArena, 4}, ElementType::kFp32, 1, 1, 1, kNoIndex};
  device.launch(FillRowsCall{first, 3}, memory, 0, a);
  device.launch(CopyRowsCall{first, second, false}, memory, 0, b);
  device.synchronize(std::chrono::milliseconds(1));
  std::array<float, 2> values{};
  device.read(std::as_writable_bytes(std::span<float>(values)), memory.arena);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 0);
}

struct Failing {
  HostDeviceOptions options;
  std::int32_t repeats = 2;
  bool careful = true;
};

// One layer of 12 tokens: what runs that are to fail have.
DeviceCase one_short_sequence() {
  DeviceCase of;
  of.strategy = "allgather-cp";
  of.sequences = {{12}};
  of.layers = 1;
  return of;
}

RunRecord run_failing(const Failing& with) {
  const auto schedule = schedule_of(one_short_sequence());
  const DevicePlan plan(*schedule);
  HostDevice device(with.options);
  VirtualTransport transport;
  ExecutorOptions options;
  options.repeats = with.repeats;
  options.warmups = 0;
  options.careful = with.careful;
  options.timeout = std::chrono::milliseconds(5);
  return run_on_devices(plan, std::vector<Device*>(schedule->ranks.size(), &device), transport, options,
                        numerics_wish(*schedule), [](const StepOutcome&, RunRecord& record) {
                          record.numerics.push_back({"O", "fp64", 0, 0, 1, 1, 0, "", true});
                        });
}

TEST(RunFailureTest, AKernelThatFailsIsNamedWithItsOp) {
  Failing with;
  with.options.failing_kernel = "swiglu";
  const RunRecord record = run_failing(with);
  EXPECT_EQ(record.failure.kind, "kernel");
  EXPECT_EQ(record.failure.kernel, "swiglu");
  EXPECT_THAT(record.failure.op, HasSubstr("`swiglu` (forward, layer 0, chunk 0)"));
  EXPECT_GE(record.failure.rank, 0);
}

TEST(RunFailureTest, AHangIsNamedWithItsOp) {
  Failing with;
  with.options.hanging_kernel = "rope";
  const RunRecord record = run_failing(with);
  EXPECT_EQ(record.failure.kind, "hang");
  EXPECT_THAT(record.failure.op, HasSubstr("`rope`"));
  EXPECT_THAT(record.failure.message, HasSubstr("not done after 5 ms: stream"));
}

TEST(RunFailureTest, AHangIsFoundWithoutWaitingForEveryOp) {
  Failing with;
  with.options.hanging_kernel = "adamw";
  with.careful = false;
  EXPECT_EQ(run_failing(with).failure.kind, "hang");
}

TEST(RunFailureTest, AHangOfATimedStepIsNamedByItsEvents) {
  const auto schedule = schedule_of(one_short_sequence());
  const DevicePlan plan(*schedule);
  HostDeviceOptions on;
  on.hanging_kernel = "swiglu_backward";
  HostDevice device(on);
  VirtualTransport transport;
  ExecutorOptions options;
  options.timeout = std::chrono::milliseconds(5);
  DeviceExecutor executor(plan, std::vector<Device*>(schedule->ranks.size(), &device), transport, options);
  RunRecord record;
  try {
    executor.time(record);
    FAIL() << "a hang was not found";
  } catch (const DeviceFault& fault) {
    EXPECT_EQ(fault.kind(), FaultKind::kHang);
    EXPECT_EQ(fault.at().rank, 0);
    EXPECT_THAT(fault.at().op, HasSubstr("`swiglu_backward` (backward, layer 0"));
  }
}

// A device whose work hangs must not be waited for, whoever ran the step; any other fault leaves it usable.
TEST(StepAlone, AHangAbandonsTheDevice) {
  class Abandoned : public HostDevice {
   public:
    using HostDevice::HostDevice;
    void abandon() override { ++abandoned; }
    int abandoned = 0;
  };
  const auto schedule = undistributed_of(one_short_sequence());
  const DevicePlan plan(*schedule);
  ExecutorOptions options;
  options.timeout = std::chrono::milliseconds(5);
  const auto abandoned_after = [&](const HostDeviceOptions& on) {
    Abandoned device(on);
    EXPECT_THROW(step_alone(plan, device, options, numerics_wish(*schedule)), DeviceFault);
    return device.abandoned;
  };
  HostDeviceOptions hangs, fails;
  hangs.hanging_kernel = "swiglu";
  fails.failing_kernel = "swiglu";
  EXPECT_EQ(abandoned_after(hangs), 1);
  EXPECT_EQ(abandoned_after(fails), 0);
}

TEST(MergeRecords, PutsRanksOfProcessesTogether) {
  RunRecord first, second;
  first.ranks = second.ranks = 2;
  first.repeats = second.repeats = 2;
  first.rank_runs = {{1, 0, 0, 0, 0, 0, 0, {5, 6}, {}}};
  second.rank_runs = {{0, 0, 0, 0, 0, 0, 0, {7, 4}, {}}};
  first.step_ps = {5, 6};
  second.step_ps = {7, 4};
  MeasuredOp op;
  op.rank = 1;
  first.ops = {op};
  op.rank = 0;
  second.ops = {op};
  second.failure.kind = "nccl";
  const RunRecord merged = merge_records({first, second});
  ASSERT_EQ(merged.rank_runs.size(), 2U);
  EXPECT_EQ(merged.rank_runs[0].rank, 0);
  EXPECT_EQ(merged.ops[0].rank, 0);
  EXPECT_EQ(merged.step_ps, (std::vector<std::int64_t>{7, 6}));
  EXPECT_EQ(merged.hardware.devices, 2);
  EXPECT_EQ(merged.failure.kind, "nccl");
}

TEST(RunFailureTest, ADeviceThatIsGoneIsNotAKernelsFault) {
  Failing with;
  with.options.failing_kernel = "gemm";
  with.options.lost = true;
  EXPECT_EQ(run_failing(with).failure.kind, "device-lost");
}

TEST(RunFailureTest, MemoryIsAskedForBeforeAnythingRuns) {
  Failing with;
  with.options.memory_bytes = 1 << 16;
  const RunRecord record = run_failing(with);
  EXPECT_EQ(record.failure.kind, "memory");
  EXPECT_THAT(record.failure.message, HasSubstr("the device has 65536 free"));
  EXPECT_TRUE(record.numerics.empty());
}

// A device that fails once numbers are done: the first timed step.
class FailsLater : public HostDevice {
 public:
  void hold_start(StreamHandle) override { throw DeviceFault(FaultKind::kDeviceLost, {}, "taken away"); }
};

TEST(RunFailureTest, WhatWasMeasuredBeforeIsKept) {
  const auto schedule = schedule_of(one_short_sequence());
  const DevicePlan plan(*schedule);
  FailsLater device;
  VirtualTransport transport;
  const RunRecord record =
      run_on_devices(plan, std::vector<Device*>(schedule->ranks.size(), &device), transport, {},
                     numerics_wish(*schedule), [](const StepOutcome& outcome, RunRecord& of_run) {
                       of_run.numerics.push_back({"loss", "fp64", outcome.loss, 0, 1, 1, 0, "", true});
                     });
  EXPECT_EQ(record.failure.kind, "device-lost");
  ASSERT_EQ(record.numerics.size(), 1U);
  EXPECT_GT(record.numerics[0].error, 0);
  EXPECT_EQ(record.rank_runs.size(), 2U);
}

TEST(TimingTest, VirtualRanksAreTimedOneAfterAnother) {
  Failing with;
  with.repeats = 3;
  const RunRecord record = run_failing(with);
  ASSERT_TRUE(record.failure.kind.empty()) << record.failure.message;
  EXPECT_EQ(record.placement, RankPlacement::kVirtual);
  EXPECT_TRUE(record.step_ps.empty());
  ASSERT_EQ(record.rank_runs.size(), 2U);
  bool collective = false, gemm = false;
  for (const MeasuredOp& op : record.ops) {
    ASSERT_EQ(op.start_ps.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_LE(0, op.start_ps[i]);
      EXPECT_LE(op.start_ps[i], op.end_ps[i]);
    }
    collective = collective || (op.kind == OpKind::kCollective && op.communication && op.kernel == "stand-in");
    gemm = gemm || (op.kind == OpKind::kGemm && op.kernel == "host gemm" && !op.communication);
  }
  EXPECT_TRUE(collective);
  EXPECT_TRUE(gemm);
  for (const RankRun& rank : record.rank_runs) {
    EXPECT_EQ(rank.step_ps.size(), 3U);
    EXPECT_LE(rank.resident_bytes, rank.planned_peak_bytes);
    EXPECT_LE(rank.planned_peak_bytes, rank.arena_bytes);
  }
  EXPECT_TRUE(run_record_from_json(to_json(record), "run.json"));
}

}  // namespace
}  // namespace longhaul
