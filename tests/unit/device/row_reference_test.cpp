// Sampled rows against closed forms and against whole steps.
#include "validate/device/row_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/core/mix.h"
#include "tests/unit/device/device_case.h"
#include "tests/unit/device/loose_rows.h"
#include "validate/device/host_device.h"
#include "validate/device/sampled_rows.h"

namespace longhaul {
namespace {

StepOutcome run_for_rows(const Schedule& schedule) {
  const DevicePlan plan(schedule);
  HostDevice device;
  VirtualTransport transport;
  DeviceExecutor executor(plan, std::vector<Device*>(schedule.ranks.size(), &device), transport, {});
  return executor.run_step(row_wish(schedule));
}

// The first token of a document sees itself alone: O = V, LSE = q k / sqrt(d), dQ = P (dO V - O dO) K scale = 0.
TEST(ReferenceRow, TheFirstTokenIsItsOwnValue) {
  DeviceCase of;
  of.strategy = "allgather-cp";
  const auto schedule = schedule_of(of);
  const ModelShape& model = schedule->model;
  const StepOutcome outcome = run_for_rows(*schedule);
  const LayerRows rows = layer_rows(*schedule, outcome, 0);
  const RowResult result = reference_row(model, *schedule->batch, rows, 37);  // the second document begins there
  const Bf16* qkv = rows.qkv.row(37);
  for (std::int64_t h = 0; h < model.q_heads; ++h) {
    const std::int64_t kv = h / (model.q_heads / model.kv_heads);
    double score = 0;
    for (std::int64_t c = 0; c < model.head_dim; ++c) {
      const double v = to_float(qkv[model.q_width() + model.kv_width() + kv * model.head_dim + c]);
      EXPECT_DOUBLE_EQ(result.o[static_cast<std::size_t>(h * model.head_dim + c)], v);
      score += static_cast<double>(to_float(qkv[h * model.head_dim + c])) *
               static_cast<double>(to_float(qkv[model.q_width() + kv * model.head_dim + c]));
      EXPECT_NEAR(result.dq[static_cast<std::size_t>(h * model.head_dim + c)], 0, 1e-15);
    }
    EXPECT_NEAR(result.lse[static_cast<std::size_t>(h)], score / std::sqrt(static_cast<double>(model.head_dim)), 1e-12);
  }
}

// The same definition twice: row by row, and as matrix products over documents.
TEST(ReferenceRows, AreTheRowsOneByOne) {
  for (const char* strategy : {"allgather-cp", "bd-offset-cp"}) {
    DeviceCase of;
    of.strategy = strategy;
    const auto schedule = schedule_of(of);
    const StepOutcome outcome = run_for_rows(*schedule);
    const LayerRows table = layer_rows(*schedule, outcome, 1);
    const std::vector<std::int64_t> rows = sample_rows(*schedule->batch, 40, 5);
    const std::vector<RowResult> all = reference_rows(schedule->model, *schedule->batch, table, rows, 2);
    ASSERT_EQ(all.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RowResult one = reference_row(schedule->model, *schedule->batch, table, rows[i]);
      for (std::size_t j = 0; j < one.o.size(); ++j) {
        EXPECT_NEAR(all[i].o[j], one.o[j], 1e-12);
        EXPECT_NEAR(all[i].dq[j], one.dq[j], 1e-12);
      }
      for (std::size_t h = 0; h < one.lse.size(); ++h) EXPECT_NEAR(all[i].lse[h], one.lse[h], 1e-12);
    }
  }
}

// The same beyond one block of 512 keys, where sums shrink as larger scores come and blocks may be left out.
TEST(ReferenceRows, AreTheRowsOneByOneOverManyBlocksOfKeys) {
  ModelShape model;
  model.q_heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  for (const std::int64_t block : {0, 8, 700}) {
    Batch batch;
    if (block > 0) batch.objective = {ObjectiveKind::kBlockDiffusion, block};
    batch.documents = {1700, 90};
    batch.sequences.push_back({{0, 1}, 1790});
    const std::int64_t count = RowOrder(batch).rows;
    const LooseRows qkv(count, 2 * model.kv_width() + model.q_width(), 1), gradient(count, model.q_width(), 1 << 30);
    const LayerRows table = loose_layer(qkv, gradient);
    const std::vector<std::int64_t> rows = sample_rows(batch, 80, 3);
    const std::vector<RowResult> all = reference_rows(model, batch, table, rows, 2);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RowResult one = reference_row(model, batch, table, rows[i]);
      for (std::size_t j = 0; j < one.o.size(); ++j) {
        ASSERT_NEAR(all[i].o[j], one.o[j], 1e-12) << "row " << rows[i] << ", blocks of " << block;
        ASSERT_NEAR(all[i].dq[j], one.dq[j], 1e-11) << "row " << rows[i] << ", blocks of " << block;
      }
      for (std::size_t h = 0; h < one.lse.size(); ++h) ASSERT_NEAR(all[i].lse[h], one.lse[h], 1e-12);
    }
  }
}

class SampledRows : public testing::TestWithParam<const char*> {};

TEST_P(SampledRows, AreNoWorseThanTwiceTheUndistributedStep) {
  DeviceCase of;
  of.strategy = GetParam();
  of.ranks = 4;
  of.recompute = Recompute::kFull;
  const auto schedule = schedule_of(of);
  const auto alone = undistributed_of(of);
  const std::vector<std::int64_t> rows = sample_rows(*schedule->batch, 24, 1);
  ASSERT_EQ(rows.size(), 24U);
  StepOutcome outcome = run_for_rows(*schedule);
  HostMath one(1), three(3);
  const std::vector<QuantityNorm> undistributed = sampled_errors(*alone, run_for_rows(*alone), rows, one);
  const std::vector<QuantityNorm> errors = sampled_errors(*schedule, outcome, rows, three);
  const std::vector<QuantityNorm> one_thread = sampled_errors(*schedule, outcome, rows, one);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(errors[i].error, one_thread[i].error);
    EXPECT_GT(errors[i].error, 0) << errors[i].quantity;
    EXPECT_LT(errors[i].error, 2e-2) << errors[i].quantity;
  }
  for (const NumericsResult& result : judge_rows(errors, undistributed)) {
    EXPECT_TRUE(result.pass) << result.quantity << " " << result.error << " against " << result.undistributed_error;
  }
  // A wrong log-sum-exp is seen, though O is right.
  for (StepTensor& tensor : outcome.tensors) {
    if (!tensor.before_op) continue;
    float* values = reinterpret_cast<float*>(tensor.bytes.data());
    for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) values[i] += 0.25F;
  }
  const std::vector<NumericsResult> wrong = judge_rows(sampled_errors(*schedule, outcome, rows, one), undistributed);
  EXPECT_TRUE(wrong[0].pass);
  EXPECT_FALSE(wrong[1].pass);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SampledRows, testing::Values("flashcp", "ulysses", "bd-offset-cp", "seq1f1b"));

TEST(SampleRows, AreDistinctAndRepeat) {
  Batch batch;
  batch.documents = {10, 1000};
  const std::vector<std::int64_t> rows = sample_rows(batch, 256, 9);
  EXPECT_EQ(rows.size(), 256U);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
  EXPECT_EQ(rows, sample_rows(batch, 256, 9));
  EXPECT_EQ(sample_rows(batch, 5000, 9).size(), 1010U);
}

}  // namespace
}  // namespace longhaul
