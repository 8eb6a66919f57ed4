// The device executor on a GPU: every kind of call against the CPU's device, whole steps against double precision,
// virtual ranks and NCCL with groups of one, times, faults.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/device/device_case.h"
#include "tests/unit/device/loose_rows.h"
#include "validate/cpu/reference.h"
#include "validate/device/cuda/cuda_device.h"
#include "validate/device/cuda/cuda_math.h"
#include "validate/device/host_device.h"
#include "validate/device/initial_values.h"
#include "validate/device/sampled_rows.h"
#ifdef LONGHAUL_NCCL
#include "validate/device/cuda/nccl_transport.h"
#endif

namespace longhaul {
namespace {

#ifdef LONGHAUL_NCCL
// As one process runs: NCCL's calls block, nothing gives up on them.
constexpr std::chrono::milliseconds kNcclPatience{0};
#endif

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    gpus_ = cuda_device_count(why);
    if (gpus_ == 0) GTEST_SKIP() << "no GPU: " << why;
  }
  int gpus_ = 0;
};

// Shapes that the kernels take: heads of 64 or 128, widths and vocabulary multiples of 8.
DeviceCase gpu_case(const std::string& strategy, int ranks, std::int64_t head_dim) {
  DeviceCase of;
  of.strategy = strategy;
  of.ranks = ranks;
  of.head_dim = head_dim;
  of.vocab = 104;
  of.sequences = {{150, 47}, {201}, {99, 85}, {190}};
  return of;
}

StepOutcome run_on(Device& device, const Schedule& schedule, const StepWish& wish, bool poison) {
  const DevicePlan plan(schedule);
  VirtualTransport transport;
  ExecutorOptions options;
  options.poison = poison;
  DeviceExecutor executor(plan, std::vector<Device*>(schedule.ranks.size(), &device), transport, options);
  return executor.run_step(wish);
}

std::string faults(const std::vector<NumericsResult>& results) {
  std::string text;
  for (const NumericsResult& result : results) {
    if (result.pass) continue;
    text += fmt::format("{} ({}): error {:.3g}, limit {:.3g}, undistributed {:.3g}, {}\n", result.quantity,
                        result.reference, result.error, result.limit, result.undistributed_error, result.worst);
  }
  return text;
}

// ---- rows: exactly what the CPU's device gives

struct RowsCase {
  std::int64_t rows, columns, stride;
  ElementType from, to;
  bool accumulate, indexed;
};

class RowCalls : public OnGpu, public testing::WithParamInterface<RowsCase> {};

// Small whole numbers, whose sums are exact in every order: `from` in the first half, `to` in the second.
std::vector<std::byte> whole_numbers(std::int64_t bytes, ElementType from, ElementType to) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  for (const auto& [begin, type] : {std::pair{std::int64_t{0}, from}, std::pair{bytes / 2, to}}) {
    const std::int64_t size = element_bytes(type);
    for (std::int64_t i = 0; i < bytes / 2 / size; ++i) {
      const auto value = static_cast<float>(i * 37 % 31 - 15);
      const Bf16 rounded = to_bf16(value);
      const void* source = size == 2 ? static_cast<const void*>(&rounded) : static_cast<const void*>(&value);
      std::memcpy(data.data() + begin + i * size, source, static_cast<std::size_t>(size));
    }
  }
  return data;
}

// Runs the calls on both devices and compares all bytes.
void expect_equal_bytes(const std::vector<DeviceCall>& calls, const std::vector<std::int32_t>& index, ElementType from,
                        ElementType to) {
  constexpr std::int64_t kBytes = 1 << 20;
  HostDevice host;
  CudaDevice cuda(0);
  std::vector<std::vector<std::byte>> results;
  const std::vector<std::byte> start = whole_numbers(kBytes, from, to);
  for (Device* device : {static_cast<Device*>(&host), static_cast<Device*>(&cuda)}) {
    DeviceArena memory;
    memory.arena = device->allocate(kBytes);
    memory.constants = device->allocate(static_cast<std::int64_t>(index.size()) * 4 + 256);
    memory.scratch = {device->allocate(256)};
    device->write(memory.arena, start);
    device->write(memory.constants, std::as_bytes(std::span<const std::int32_t>(index)));
    const StreamHandle stream = device->make_stream();
    for (const DeviceCall& call : calls) device->launch(call, memory, 0, stream);
    device->synchronize(std::chrono::milliseconds(10'000));
    results.emplace_back(start.size());
    device->read(results.back(), memory.arena);
  }
  const auto [a, b] = std::mismatch(results[0].begin(), results[0].end(), results[1].begin());
  EXPECT_EQ(a, results[0].end()) << "first difference at byte " << (a - results[0].begin());
}

TEST_P(RowCalls, EqualTheCpus) {
  const RowsCase& of = GetParam();
  std::vector<std::int32_t> index;
  for (std::int64_t i = 0; i < of.rows; ++i) index.push_back(static_cast<std::int32_t>((i * 7 + 3) % of.rows));
  const std::int64_t entry = of.indexed ? 0 : kNoIndex;
  const Rows from{{MemoryPart::kArena, 0}, of.from, of.rows, of.columns, of.stride, entry};
  const Rows to{{MemoryPart::kArena, 1 << 19}, of.to, of.rows, of.columns, of.stride, kNoIndex};
  expect_equal_bytes({CopyRowsCall{from, to, of.accumulate}}, index, of.from, of.to);
  expect_equal_bytes({SumRowsCall{{from, to, from}, to, of.accumulate}}, index, of.from, of.to);
  expect_equal_bytes({FillRowsCall{to, 0.3F}}, index, of.from, of.to);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RowCalls,
                         testing::Values(RowsCase{33, 64, 64, ElementType::kBf16, ElementType::kBf16, false, false},
                                         RowsCase{33, 64, 96, ElementType::kBf16, ElementType::kBf16, true, true},
                                         RowsCase{40, 24, 40, ElementType::kBf16, ElementType::kFp32, false, true},
                                         RowsCase{17, 13, 29, ElementType::kFp32, ElementType::kBf16, true, false},
                                         RowsCase{1, 70003, 70003, ElementType::kBf16, ElementType::kBf16, true, false},
                                         RowsCase{70000, 1, 1, ElementType::kBf16, ElementType::kFp32, false, false}));

// The one row of the list stands where no 16 bytes begin.
TEST_F(OnGpu, OneRowOfAListIsReadWhereItStands) {
  for (const std::int64_t columns : {10, 16}) {
    const std::vector<std::int32_t> index = {5};
    const Rows from{{MemoryPart::kArena, 0}, ElementType::kBf16, 1, columns, columns + 1, 0};
    const Rows to{{MemoryPart::kArena, 1 << 19}, ElementType::kFp32, 1, columns, columns, kNoIndex};
    expect_equal_bytes({CopyRowsCall{from, to, false}}, index, from.type, to.type);
  }
}

TEST_F(OnGpu, ANegativeIndexReadsZeros) {
  const std::vector<std::int32_t> index = {2, -1, 0};
  const Rows from{{MemoryPart::kArena, 0}, ElementType::kBf16, 3, 32, 32, 0};
  const Rows to{{MemoryPart::kArena, 1 << 19}, ElementType::kBf16, 3, 32, 32, kNoIndex};
  expect_equal_bytes({CopyRowsCall{from, to, false}}, index, from.type, to.type);
}

TEST_F(OnGpu, NoiseIsFiniteAndSmall) {
  CudaDevice device(0);
  std::byte* memory = device.allocate(4096);
  const StreamHandle stream = device.make_stream();
  device.noise({memory, nullptr, ElementType::kFp32, 4, 256, 256}, 7, stream);
  device.synchronize(std::chrono::milliseconds(10'000));
  std::vector<float> values(1024);
  device.read(std::as_writable_bytes(std::span<float>(values)), memory);
  double sum = 0, squares = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), 1.0F / 64);
    sum += static_cast<double>(value) * 64;
    squares += static_cast<double>(value) * static_cast<double>(value) * 4096;
  }
  EXPECT_NEAR(sum / 1024, 0, 0.1);  // uniform: mean 0, variance 1/3, of the mean of 1024 3e-4
  EXPECT_NEAR(squares / 1024, 1.0 / 3, 0.05);
}

// ---- double precision

// Against the cores, at sizes beside the tiles of both. Strides of the operands and of the result are those of wider
// matrices. A product too small for the way is left alone.
TEST_F(OnGpu, DoubleProductsAreThoseOfTheCores) {
  const std::unique_ptr<DoubleMath> math = make_cuda_math(0, 4);
  const ProductElsewhere products = math->products();
  const Matrix wide_a = Matrix::Random(1100, 1300), wide_b = Matrix::Random(1200, 1250);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const std::int64_t m = 1001, n = 1033, k = 999;
      const auto a = wide_a.block(3, 5, transpose_a ? k : m, transpose_a ? m : k);
      const auto b = wide_b.block(2, 7, transpose_b ? n : k, transpose_b ? k : n);
      Matrix expected(m, n), wide = Matrix::Constant(m, n + 9, 7.0);
      wide_product_into(a, transpose_a, b, transpose_b, 4, expected);
      ASSERT_TRUE(products(a, transpose_a, b, transpose_b, wide.leftCols(n)));
      EXPECT_LT((wide.leftCols(n) - expected).cwiseAbs().maxCoeff(), 1e-11) << transpose_a << transpose_b;
      EXPECT_EQ(wide.rightCols(9), Matrix::Constant(m, 9, 7.0)) << "what lies beside the result";
    }
  }
  Matrix small = Matrix::Constant(20, 20, 3.0);
  EXPECT_FALSE(products(wide_a.topLeftCorner(20, 20), false, wide_b.topLeftCorner(20, 20), false, small));
  EXPECT_EQ(small, Matrix::Constant(20, 20, 3.0));
}

struct RowCase {
  std::int64_t q_heads, kv_heads, head_dim, block;  // block 0: causal
};
class GpuRows : public OnGpu, public testing::WithParamInterface<RowCase> {};

TEST_P(GpuRows, AreThoseOfTheCores) {
  const RowCase& with = GetParam();
  ModelShape model;
  model.q_heads = with.q_heads;
  model.kv_heads = with.kv_heads;
  model.head_dim = with.head_dim;
  Batch batch;
  if (with.block > 0) batch.objective = {ObjectiveKind::kBlockDiffusion, with.block};
  batch.documents = {700, 1, 90, 300};
  batch.sequences.push_back({{0, 1, 2, 3}, 1091});
  const std::int64_t count = RowOrder(batch).rows;
  const LooseRows qkv(count, 2 * model.kv_width() + model.q_width(), 1), gradient(count, model.q_width(), 1 << 30);
  const LayerRows table = loose_layer(qkv, gradient);
  const std::vector<std::int64_t> rows = sample_rows(batch, 150, 3);
  const std::vector<RowResult> found = make_cuda_math(0, 3)->rows(model, batch, table, rows);
  const std::vector<RowResult> expected = reference_rows(model, batch, table, rows, 3);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < expected[i].o.size(); ++j) {
      ASSERT_NEAR(found[i].o[j], expected[i].o[j], 1e-11) << "row " << rows[i] << ", element " << j;
      ASSERT_NEAR(found[i].dq[j], expected[i].dq[j], 1e-10) << "row " << rows[i] << ", element " << j;
    }
    for (std::size_t h = 0; h < expected[i].lse.size(); ++h) ASSERT_NEAR(found[i].lse[h], expected[i].lse[h], 1e-11);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuRows,
                         testing::Values(RowCase{8, 2, 128, 0}, RowCase{8, 2, 128, 32}, RowCase{4, 4, 64, 0},
                                         RowCase{6, 1, 256, 400}, RowCase{2, 1, 24, 8}));

// ---- whole steps

struct StepCase {
  std::string strategy;
  int ranks;
  std::int64_t head_dim;
};

class GpuStep : public OnGpu, public testing::WithParamInterface<StepCase> {};

TEST_P(GpuStep, IsAsRightAsTheUndistributedStep) {
  const StepCase& with = GetParam();
  DeviceCase of = gpu_case(with.strategy, with.ranks, with.head_dim);
  of.zero_stage = with.ranks == 2 ? 0 : 3;
  of.recompute = with.ranks == 2 ? Recompute::kFull : Recompute::kNone;
  const auto schedule = schedule_of(of);
  const auto alone = undistributed_of(of);
  const StepReference reference = reference_of(
      schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
  CudaDevice device(0);
  const StepOutcome undistributed = run_on(device, *alone, row_wish(*alone), false);
  const StepOutcome outcome = run_on(device, *schedule, row_wish(*schedule), true);
  const std::vector<QuantityNorm> baseline = relative_errors(*alone, undistributed, reference);
  EXPECT_EQ(faults(judge(baseline, {}, "fp64")), "") << "undistributed";
  EXPECT_EQ(faults(judge(relative_errors(*schedule, outcome, reference), baseline, "fp64")), "");
  const std::vector<std::int64_t> rows = sample_rows(*schedule->batch, 64, 1);
  const std::unique_ptr<DoubleMath> math = make_cuda_math(0, 4);
  EXPECT_EQ(faults(judge_rows(sampled_errors(*schedule, outcome, rows, *math),
                              sampled_errors(*alone, undistributed, rows, *math))),
            "");
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases;
  for (const std::string& strategy : device_strategies()) {
    cases.push_back({strategy, 2, 64});
    cases.push_back({strategy, 4, 128});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Strategies, GpuStep, testing::ValuesIn(step_cases()), [](const auto& suite) {
  std::string name = fmt::format("{}_{}_{}", suite.param.strategy, suite.param.ranks, suite.param.head_dim);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_F(OnGpu, OurKernelsAloneAreRightToo) {
  const auto schedule = schedule_of(gpu_case("per-doc-cp", 2, 128));
  const StepReference reference = reference_of(
      schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
  CudaDevice device(0, AttentionChoice::kPieces);
  const StepOutcome outcome = run_on(device, *schedule, numerics_wish(*schedule), true);
  EXPECT_EQ(faults(judge(relative_errors(*schedule, outcome, reference), {}, "fp64")), "");
}

TEST_F(OnGpu, TimesOfVirtualRanksAreComplete) {
  const auto schedule = schedule_of(gpu_case("flashcp", 4, 128));
  const DevicePlan plan(*schedule);
  CudaDevice device(0);
  VirtualTransport transport;
  ExecutorOptions options;
  options.repeats = 3;
  const RunRecord record = run_on_devices(plan, std::vector<Device*>(4, &device), transport, options, {}, nullptr);
  ASSERT_EQ(record.failure.kind, "") << record.failure.message;
  for (const MeasuredOp& op : record.ops) {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_LE(0, op.start_ps[i]) << op.label;
      EXPECT_LT(op.start_ps[i], op.end_ps[i]) << op.label;
    }
  }
  for (const RankRun& rank : record.rank_runs) {
    for (const std::int64_t step : rank.step_ps) EXPECT_GT(step, 0);
    EXPECT_EQ(rank.clock_mhz.size(), rank.step_ps.size());
    // Steps too short to tell have 0 (kShortestClockSpanNs); no GPU runs below 100 MHz or beyond its highest clock.
    for (const std::int32_t clock : rank.clock_mhz) {
      EXPECT_TRUE(clock == 0 || (clock > 100 && clock < 1.02 * record.hardware.sm_clock_mhz)) << clock;
    }
  }
  EXPECT_TRUE(run_record_from_json(to_json(record), "run.json"));
}

TEST_F(OnGpu, APlanThatDoesNotFitIsRefusedBeforeItRuns) {
  class Small : public CudaDevice {
   public:
    Small() : CudaDevice(0) {}
    std::int64_t free_bytes() const override { return 1 << 20; }
  };
  const auto schedule = schedule_of(gpu_case("basp", 2, 64));
  const DevicePlan plan(*schedule);
  Small device;
  VirtualTransport transport;
  const RunRecord record = run_on_devices(plan, std::vector<Device*>(2, &device), transport, {}, {}, nullptr);
  EXPECT_EQ(record.failure.kind, "memory");
}

TEST_F(OnGpu, AShapeThatAKernelRefusesIsNamed) {
  DeviceCase of = gpu_case("basp", 2, 64);
  of.head_dim = 32;  // no attention kernel has it
  const auto schedule = schedule_of(of);
  const DevicePlan plan(*schedule);
  CudaDevice device(0);
  VirtualTransport transport;
  const RunRecord record = run_on_devices(plan, std::vector<Device*>(2, &device), transport, {}, {}, nullptr);
  EXPECT_EQ(record.failure.kind, "kernel");
  EXPECT_EQ(record.failure.kernel, "attention_forward");
  EXPECT_NE(record.failure.op.find("`attention"), std::string::npos) << record.failure.op;
}

TEST_F(OnGpu, APlantedDelayIsInTheKernelsTimes) {
  const auto schedule = schedule_of(gpu_case("flashcp", 2, 128));
  const DevicePlan plan(*schedule);
  VirtualTransport transport;
  ExecutorOptions options;
  options.repeats = 3;
  CudaDevice device(0);
  device.plant_delay("swiglu", std::chrono::microseconds(500));
  const RunRecord record = run_on_devices(plan, std::vector<Device*>(2, &device), transport, options, {}, nullptr);
  ASSERT_EQ(record.failure.kind, "") << record.failure.message;
  int delayed = 0;
  for (const MeasuredOp& op : record.ops) {
    const std::int64_t shortest = op.end_ps[0] - op.start_ps[0];
    if (op.kernel == "swiglu") {
      ++delayed;
      EXPECT_GT(shortest, 500'000'000);
    }
  }
  EXPECT_GT(delayed, 0);
}

TEST_F(OnGpu, AHangIsFoundAndNamed) {
  const auto schedule = schedule_of(gpu_case("flashcp", 2, 128));
  const DevicePlan plan(*schedule);
  VirtualTransport transport;
  ExecutorOptions options;
  options.careful = true;
  options.timeout = std::chrono::milliseconds(300);
  CudaDevice device(0);
  device.plant_delay("rope", std::chrono::seconds(3));  // ends by itself, so that the test can
  DeviceExecutor executor(plan, std::vector<Device*>(2, &device), transport, options);
  try {
    executor.run_step({});
    FAIL() << "three seconds passed within 300 ms";
  } catch (const DeviceFault& fault) {
    EXPECT_EQ(fault.kind(), FaultKind::kHang);
    EXPECT_NE(fault.at().op.find("`rope`"), std::string::npos) << fault.what();
  }
  device.synchronize(std::chrono::milliseconds(30'000));
}

#ifdef LONGHAUL_NCCL
// One rank whose only group is itself: its parameters gathered, then reduced in place.
Schedule group_of_one() {
  Schedule schedule;
  schedule.model.vocab = 104;
  schedule.model.hidden = 256;
  schedule.model.q_heads = schedule.model.kv_heads = 4;
  schedule.model.head_dim = 64;
  auto batch = std::make_shared<Batch>();
  batch->documents = {4};
  schedule.batch = batch;
  for (const auto& [name, category] :
       {std::pair{"embedding_params", MemoryCategory::kParameters}, std::pair{"gathered", MemoryCategory::kGathered}}) {
    TensorKind kind;
    kind.name = name;
    kind.flat_rows = schedule.model.vocab * schedule.model.hidden;
    kind.category = category;
    schedule.tensors.push_back(kind);
  }
  const auto view = [&](int kind, Access access) {
    View of;
    of.tensor.kind = static_cast<TensorKindId>(kind);
    of.tensor.has_layer = of.tensor.has_chunk = false;
    of.access = access;
    of.flat_rows = schedule.model.vocab * schedule.model.hidden;
    of.columns = 1;
    return of;
  };
  Op gather;
  gather.kind = OpKind::kCollective;
  gather.collective = CollectiveKind::kAllGather;
  gather.role = 0;
  gather.stream = kFirstCommunicationStream;
  gather.label = "gather";
  gather.parts = {{view(0, Access::kRead), view(1, Access::kWrite), -1}};
  gather.acquire = {view(1, Access::kWrite).tensor};
  Op reduce = gather;
  reduce.collective = CollectiveKind::kAllReduce;
  reduce.label = "reduce";
  reduce.parts = {{View{}, view(1, Access::kAccumulate), -1}};
  reduce.acquire.clear();
  reduce.release = gather.acquire;
  schedule.segments.push_back({"step", {gather, reduce}});
  schedule.programs.emplace_back();
  schedule.programs[0].blocks.emplace_back();
  schedule.programs[0].resident = {view(0, Access::kRead).tensor};
  schedule.roles = {"zero"};
  schedule.groups = {{{0}}};
  schedule.shapes.emplace_back();
  RankInfo rank;
  rank.groups = {0};
  rank.shapes = {0};
  schedule.ranks = {rank};
  return schedule;
}

TEST_F(OnGpu, NcclWithAGroupOfOne) {
  const Schedule schedule = group_of_one();
  const DevicePlan plan(schedule);
  CudaDevice device(0);
  NcclTransport transport(schedule, {&device}, within_one_process(), kNcclPatience);
  DeviceExecutor executor(plan, {&device}, transport, {});
  EXPECT_FALSE(executor.is_virtual());
  StepWish wish;
  wish.released = {"gathered"};
  const StepOutcome outcome = executor.run_step(wish);
  EXPECT_EQ(outcome.collectives, 2);
  ASSERT_EQ(outcome.tensors.size(), 1U);
  const std::vector<double> expected = unit_values(schedule.model, UnitKind::kEmbedding, 0, 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Bf16 value;
    std::memcpy(&value, outcome.tensors[0].bytes.data() + 2 * i, 2);
    ASSERT_EQ(value.bits, to_bf16(static_cast<float>(expected[i])).bits) << i;
  }
  RunRecord record;
  executor.time(record);
  EXPECT_EQ(record.placement, RankPlacement::kReal);
  EXPECT_EQ(record.step_ps.size(), static_cast<std::size_t>(record.repeats));
  ASSERT_EQ(record.ops.size(), 2U);
  EXPECT_EQ(record.ops[0].kernel, "ncclAllGather");
  EXPECT_FALSE(record.ops[0].communication);
}

TEST_F(OnGpu, NcclBetweenGpus) {
  if (gpus_ < 2) GTEST_SKIP() << "needs two GPUs, " << gpus_ << " is visible";
  for (const std::string& strategy : device_strategies()) {
    const DeviceCase of = gpu_case(strategy, 2, 64);
    const auto schedule = schedule_of(of);
    const auto alone = undistributed_of(of);
    const StepReference reference = reference_of(
        schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
    CudaDevice first(0), second(1);
    const StepOutcome undistributed = run_on(first, *alone, numerics_wish(*alone), false);
    const DevicePlan plan(*schedule);
    NcclTransport transport(*schedule, {&first, &second}, within_one_process(), kNcclPatience);
    DeviceExecutor executor(plan, {&first, &second}, transport, {});
    const StepOutcome outcome = executor.run_step(numerics_wish(*schedule));
    EXPECT_EQ(faults(judge(relative_errors(*schedule, outcome, reference),
                           relative_errors(*alone, undistributed, reference), "fp64")),
              "")
        << strategy;
    RunRecord record;
    executor.time(record);
    EXPECT_EQ(record.step_ps.size(), static_cast<std::size_t>(record.repeats)) << strategy;
  }
}
#endif

}  // namespace
}  // namespace longhaul
