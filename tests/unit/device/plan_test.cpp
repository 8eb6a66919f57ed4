// Programs, launch order and arenas of small schedules made by hand, and the table of kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "validate/cpu/errors.h"
#include "validate/device/arena_plan.h"
#include "validate/device/device_fault.h"
#include "validate/device/launch_order.h"
#include "validate/device/op_mapping.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One rank, streams of one role; flat tensors t0 .. t3 of 1000 bf16 elements that ops zero.
class Builder {
 public:
  Builder() {
    schedule_.model.vocab = 97;
    auto batch = std::make_shared<Batch>();
    batch->documents = {4};
    schedule_.batch = batch;
    for (int i = 0; i < 4; ++i) {
      TensorKind kind;
      kind.name = "t" + std::to_string(i);
      kind.flat_rows = 1000;
      schedule_.tensors.push_back(kind);
    }
    schedule_.segments.emplace_back();
    schedule_.programs.emplace_back();
    schedule_.programs[0].blocks.emplace_back();
    schedule_.roles = {"pair"};
    schedule_.groups.push_back({{0}});
    schedule_.shapes.emplace_back();
    RankInfo rank;
    rank.groups = {0};
    rank.shapes = {0};
    schedule_.ranks = {rank};
  }

  static TensorRef tensor(int kind) {
    TensorRef ref;
    ref.kind = static_cast<TensorKindId>(kind);
    ref.has_layer = ref.has_chunk = false;
    return ref;
  }
  Op& zero(int kind, StreamId stream) {
    Op op;
    op.function = Function::kZero;
    op.stream = stream;
    op.label = "zero_t" + std::to_string(kind);
    View view;
    view.tensor = tensor(kind);
    view.access = Access::kWrite;
    view.flat_rows = 1000;
    view.columns = 1;
    op.operands = {view};
    schedule_.segments[0].ops.push_back(op);
    return schedule_.segments[0].ops.back();
  }
  // Zeroes the tensor in an op that acquires and releases it.
  Op& alone(int kind, StreamId stream) {
    Op& op = zero(kind, stream);
    op.acquire = {tensor(kind)};
    op.release = {tensor(kind)};
    return op;
  }
  const Schedule& schedule() const { return schedule_; }
  Schedule& schedule() { return schedule_; }

 private:
  Schedule schedule_;
};

TEST(HappensBeforeTest, StreamsAndEventsOrderAndNothingElse) {
  Builder b;
  b.alone(0, 0).record = 5;   // 0
  b.alone(1, 3);              // 1: another stream, no wait
  b.alone(2, 3).waits = {5};  // 2
  b.alone(3, 0);              // 3
  const Programs programs = unroll(b.schedule());
  const HappensBefore before(programs.ranks[0], programs.streams);
  EXPECT_TRUE(before(0, 3));   // same stream
  EXPECT_TRUE(before(0, 2));   // event
  EXPECT_TRUE(before(1, 2));   // same stream
  EXPECT_FALSE(before(0, 1));  // no event
  EXPECT_FALSE(before(2, 3));
  EXPECT_FALSE(before(3, 2));
  EXPECT_FALSE(before(0, 0));
}

TEST(HappensBeforeTest, AWaitNamesTheLatestRecordBeforeIt) {
  Builder b;
  b.alone(0, 0).record = 5;   // 0
  b.alone(1, 3).waits = {5};  // 1: waits for 0
  b.alone(2, 0).record = 5;   // 2
  const Programs programs = unroll(b.schedule());
  EXPECT_THAT(programs.ranks[0][1].after, ElementsAre(0));
  const HappensBefore before(programs.ranks[0], programs.streams);
  EXPECT_FALSE(before(2, 1));
}

// 1000 bf16 elements and the slack of 64 bytes take 2304 bytes at multiples of 256.
constexpr std::int64_t kPlace = 2304;

TEST(ArenaPlanTest, OrderedTensorsShareMemory) {
  Builder b;
  b.alone(0, 0);
  b.alone(1, 0);
  const Programs programs = unroll(b.schedule());
  const ArenaPlan plan = plan_arena(b.schedule(), programs, 0);
  EXPECT_EQ(plan.bytes, kPlace);
  EXPECT_EQ(plan.peak_bytes, 2000);
  EXPECT_EQ(plan.tensors[0].offset, plan.tensors[1].offset);
}

TEST(ArenaPlanTest, UnorderedStreamsDoNot) {
  Builder b;
  b.alone(0, 0);
  b.alone(1, 3);  // program order alone says nothing
  const Programs programs = unroll(b.schedule());
  const ArenaPlan plan = plan_arena(b.schedule(), programs, 0);
  EXPECT_EQ(plan.bytes, 2 * kPlace);
  EXPECT_EQ(plan.peak_bytes, 2000);
}

TEST(ArenaPlanTest, AnEventLetsThemShareAgain) {
  Builder b;
  b.alone(0, 0).record = 5;
  b.alone(1, 3).waits = {5};
  const Programs programs = unroll(b.schedule());
  EXPECT_EQ(plan_arena(b.schedule(), programs, 0).bytes, kPlace);
}

TEST(ArenaPlanTest, AnOpsReleaseAndAcquireMeet) {
  Builder b;
  b.zero(0, 0).acquire = {Builder::tensor(0)};
  Op& both = b.zero(1, 0);
  both.acquire = {Builder::tensor(1)};
  both.release = {Builder::tensor(0), Builder::tensor(1)};
  const Programs programs = unroll(b.schedule());
  EXPECT_EQ(plan_arena(b.schedule(), programs, 0).bytes, 2 * kPlace);
}

TEST(ArenaPlanTest, ResidentTensorsKeepTheirPlace) {
  Builder b;
  b.schedule().programs[0].resident = {Builder::tensor(0)};
  b.zero(0, 0);
  b.alone(1, 0);
  const Programs programs = unroll(b.schedule());
  const ArenaPlan plan = plan_arena(b.schedule(), programs, 0);
  EXPECT_EQ(plan.resident_bytes, 2000);
  EXPECT_EQ(plan.bytes, 2 * kPlace);
  EXPECT_NE(plan.find(plan.tensors[0].id, kBeforeStep), nullptr);
  EXPECT_EQ(plan.find(plan.tensors[1].id, 0), nullptr);
  EXPECT_NE(plan.find(plan.tensors[1].id, 1), nullptr);
}

TEST(ArenaPlanTest, FaultsOfLifetimesAreNamed) {
  const auto fault = [](const Builder& b) {
    try {
      plan_arena(b.schedule(), unroll(b.schedule()), 0);
    } catch (const ScheduleError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Builder twice;
  twice.zero(0, 0).acquire = {Builder::tensor(0)};
  twice.zero(0, 0).acquire = {Builder::tensor(0)};
  EXPECT_THAT(fault(twice), HasSubstr("acquires t0"));
  Builder never;
  never.zero(0, 0).acquire = {Builder::tensor(0)};
  EXPECT_THAT(fault(never), HasSubstr("never released"));
  Builder free;
  free.zero(0, 0).release = {Builder::tensor(0)};
  EXPECT_THAT(fault(free), HasSubstr("releases t0"));
}

// Two ranks that call two groups in opposite orders: no common launch order.
TEST(LaunchOrderTest, CrossedCallsAreADeadlock) {
  Builder b;
  Schedule& schedule = b.schedule();
  schedule.roles = {"a", "b"};
  schedule.groups = {{{0, 1}}, {{0, 1}}};
  schedule.segments.assign(2, {});
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 2; ++i) {
      const int role = rank == 0 ? i : 1 - i;
      Op op;
      op.kind = OpKind::kCollective;
      op.collective = CollectiveKind::kAllReduce;
      op.role = static_cast<GroupRole>(role);
      op.stream = static_cast<StreamId>(kFirstCommunicationStream + role);
      op.label = "reduce";
      View view;
      view.tensor = Builder::tensor(role);
      view.access = Access::kAccumulate;
      view.flat_rows = 1000;
      view.columns = 1;
      op.parts = {{View{}, view, -1}};
      schedule.segments[static_cast<std::size_t>(rank)].ops.push_back(op);
    }
  }
  schedule.programs.assign(2, {});
  for (int rank = 0; rank < 2; ++rank) {
    Block block;
    block.segment = static_cast<SegmentId>(rank);
    schedule.programs[static_cast<std::size_t>(rank)].blocks = {block};
    schedule.programs[static_cast<std::size_t>(rank)].resident = {Builder::tensor(0), Builder::tensor(1)};
  }
  RankInfo info;
  info.groups = {0, 1};
  info.shapes = {0};
  schedule.ranks = {info, info};
  schedule.ranks[1].program = 1;
  const Programs programs = unroll(schedule);
  try {
    launch_order(schedule, programs);
    FAIL() << "crossed calls have an order";
  } catch (const DeadlockError& error) {
    EXPECT_EQ(error.waiting().size(), 2U);
    EXPECT_THAT(error.what(), HasSubstr("waits at call 0 of group"));
  }
  std::swap(schedule.segments[1].ops[0], schedule.segments[1].ops[1]);
  const std::vector<Launch> order = launch_order(schedule, unroll(schedule));
  ASSERT_EQ(order.size(), 2U);
  EXPECT_THAT(order[0].places, ElementsAre(LaunchPlace{0, 0}, LaunchPlace{1, 0}));
}

// Every function that op.h gives to a kind has a kernel; what a kind does not have is refused by name.
TEST(OpMappingTest, TableIsTotal) {
  Op op;
  op.label = "some_op";
  int mapped = 0;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kCollective); ++kind) {
    for (int function = 0; function <= static_cast<int>(Function::kCrossEntropy); ++function) {
      op.kind = static_cast<OpKind>(kind);
      op.function = static_cast<Function>(function);
      if (mapped_kernel(op)) {
        ++mapped;
        EXPECT_NO_THROW(require_kernel(op, 3, 7));
        continue;
      }
      try {
        require_kernel(op, 3, 7);
        FAIL() << "kind " << kind << ", function " << function;
      } catch (const DeviceFault& fault) {
        EXPECT_EQ(fault.kind(), FaultKind::kUnsupported);
        EXPECT_EQ(fault.at().rank, 3);
        EXPECT_EQ(fault.at().position, 7);
        EXPECT_THAT(fault.what(), HasSubstr("some_op"));
      }
    }
  }
  // Five kinds with no function, three moves, and element-wise: all functions but none, split and join.
  EXPECT_EQ(mapped, 5 + 3 + (static_cast<int>(Function::kCrossEntropy) + 1 - 3));
}

TEST(DeviceFaultTest, LibrariesTextsAreSorted) {
  EXPECT_EQ(fault_kind_of("a.cu:3: cudaMalloc: cudaErrorMemoryAllocation: out of memory"), FaultKind::kMemory);
  EXPECT_EQ(fault_kind_of("x: cudaErrorECCUncorrectable: uncorrectable ECC error"), FaultKind::kDeviceLost);
  EXPECT_EQ(fault_kind_of("x: cudaErrorNoDevice: no CUDA-capable device is detected"), FaultKind::kDeviceLost);
  EXPECT_EQ(fault_kind_of("x: ncclSend: unhandled system error"), FaultKind::kNccl);
  EXPECT_EQ(fault_kind_of("x: cudaErrorIllegalAddress: an illegal memory access"), FaultKind::kKernel);
}

TEST(DeviceFaultTest, NamesOpAndKernel) {
  const DeviceFault fault(FaultKind::kKernel, {2, 5, "rank 2 `qkv` (forward, layer 0, chunk 0)", "gemm"}, "it broke");
  EXPECT_STREQ(fault.what(), "kernel: rank 2 `qkv` (forward, layer 0, chunk 0): kernel gemm: it broke");
  EXPECT_FALSE(fault.abandoned());
  EXPECT_TRUE(DeviceFault(FaultKind::kHang, {}, "x").abandoned());
}

}  // namespace
}  // namespace longhaul
