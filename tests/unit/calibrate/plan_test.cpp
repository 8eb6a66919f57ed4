// The plan of `longhaul calibrate`: enough rows a class, none twice, all of them calls that the libraries take, evenly
// ordered, and measured in less than seven minutes by the shipped cost model.

#include "validate/gpu/calibrate/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels/attention/tile_plan.h"
#include "kernels/cudnn/attention_problem.h"
#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "validate/gpu/attention_rows.h"
#include "validate/gpu/calibrate/budget.h"
#include "validate/gpu/calibrate/call_order.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<CallClass> all_classes() { return *parse_classes({}, "--only"); }

const KernelModel& h200_model() {
  static const KernelModel model = *load_kernel_model(*read_device("h200", data_directory()), data_directory());
  return model;
}

// One dimension: frac(0.5 + i / golden ratio), 1 / 1.618... = 0.618...
TEST(CallOrder, PointsFollowTheGoldenRatios) {
  EXPECT_NEAR(even_point(0, 1)[0], 0.1180339887, 1e-9);
  EXPECT_NEAR(even_point(1, 1)[0], 0.7360679775, 1e-9);
  for (int dimensions = 1; dimensions <= 4; ++dimensions) {
    // Each half of each coordinate has about half of the first 64 points.
    for (int d = 0; d < dimensions; ++d) {
      int low = 0;
      for (std::size_t i = 0; i < 64; ++i) low += even_point(i, dimensions)[static_cast<std::size_t>(d)] < 0.5 ? 1 : 0;
      EXPECT_NEAR(low, 32, 6) << dimensions << " dimensions, coordinate " << d;
    }
  }
}

// 4 and 2: places (1/8, 3/8, 5/8, 7/8) and (1/4, 3/4).
TEST(CallOrder, MergesInProportion) {
  EXPECT_THAT(even_merge({4, 2}), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(even_merge({0, 2}), ElementsAre(1, 1));
}

TEST(CalibrationPlan, HasTheRowsThatTheIssueAsksFor) {
  std::map<CallClass, std::size_t> counts;
  std::size_t bwd_attention = 0;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    ++counts[call.call_class];
    if (call.call_class == CallClass::kAttention && call.pass == "bwd") ++bwd_attention;
  }
  EXPECT_GE(counts[CallClass::kGemm], 120U);
  EXPECT_GE(counts[CallClass::kAttention], 120U);
  EXPECT_EQ(2 * bwd_attention, counts[CallClass::kAttention]);
  EXPECT_GE(counts[CallClass::kVarlen], 110U);
  EXPECT_GE(counts[CallClass::kDiffusion], 100U);
  EXPECT_GE(counts[CallClass::kElementwise], 100U);
  EXPECT_GE(counts[CallClass::kCopy], 100U);
  EXPECT_EQ(counts[CallClass::kLaunch], 1U);
}

// Errors are judged on rows of 0.05 ms and more, at least 100 a class.
TEST(CalibrationPlan, HasAHundredLongRowsAClass) {
  std::map<CallClass, std::size_t> longer;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    if (predicted_call_seconds(call, h200_model()) >= 6e-5) ++longer[call.call_class];
  }
  for (const CallClass call_class : {CallClass::kGemm, CallClass::kAttention, CallClass::kVarlen, CallClass::kDiffusion,
                                     CallClass::kElementwise, CallClass::kCopy}) {
    EXPECT_GE(longer[call_class], 100U) << class_name(call_class);
  }
}

TEST(CalibrationPlan, NamesNoCallTwice) {
  std::set<std::vector<std::string>> keys;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    EXPECT_TRUE(keys.insert(call_fields(call)).second) << describe(call);
    EXPECT_EQ(call_fields(call).size(), call_columns().size());
    // A field with a comma would break its row.
    for (const std::string& field : call_fields(call)) EXPECT_EQ(field.find(','), std::string::npos) << field;
    // A fit leaves families out together: a name ends in "/SIZE".
    EXPECT_NE(call.name.find('/'), std::string::npos) << call.name;
  }
}

TEST(CalibrationPlan, FamiliesAreSmall) {
  std::map<CallClass, std::map<std::string, std::size_t>> families;
  std::map<CallClass, std::size_t> rows;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    ++families[call.call_class][call.name.substr(0, call.name.rfind('/')) + call.pass];
    ++rows[call.call_class];
  }
  for (const auto& [call_class, names] : families) {
    if (call_class == CallClass::kLaunch) continue;
    for (const auto& [name, count] : names) {
      EXPECT_LE(4 * count, rows[call_class]) << class_name(call_class) << " " << name;
    }
  }
}

// What the device would refuse is found here: cuDNN's own list of refusals, and the planner of our kernel.
TEST(CalibrationPlan, AttentionCallsAreTaken) {
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    if (call.op != "attention") continue;
    const auto rows = attention_call({call.name, call.q_heads, call.kv_heads, call.head_dim, call.mask, call.pieces});
    ASSERT_TRUE(rows) << describe(call) << ": " << rows.error()[0].to_string();
    if (call.call_class == CallClass::kDiffusion) {
      EXPECT_NO_THROW(plan_tiles(rows->pieces, rows->q_rows, rows->k_rows, 128, 128)) << describe(call);
      continue;
    }
    const CudnnAttentionProblem problem = problem_of_pieces(rows->pieces, call.q_heads, call.kv_heads, call.head_dim);
    EXPECT_THAT(refusals(problem, call.pass == "bwd"), ElementsAre()) << describe(call);
    EXPECT_EQ(rows->pieces.size() == 1, call.call_class == CallClass::kAttention) << describe(call);
  }
}

TEST(CalibrationPlan, CoversMasksHeadsAndDimensions) {
  std::map<std::string, std::size_t> seen;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    if (call.call_class == CallClass::kAttention) {
      ++seen["dim " + std::to_string(call.head_dim)];
      ++seen["mask " + call.mask];
      ++seen["heads " + std::to_string(call.q_heads)];
      if (call.name.starts_with("range-")) ++seen["range"];
    }
    if (call.call_class == CallClass::kVarlen) ++seen["varlen " + call.name.substr(0, call.name.find('-'))];
    if (call.call_class == CallClass::kGemm) ++seen[call.pass];
    if (call.call_class == CallClass::kElementwise) ++seen[call.kernel];
  }
  for (const char* what : {"dim 64", "dim 128", "dim 256", "mask causal", "mask full", "range", "heads 32", "heads 64",
                           "heads 8", "heads 16", "heads 28", "heads 40", "heads 4", "varlen documents",
                           "varlen shards", "varlen slice", "fwd", "bwd-input", "bwd-weight"}) {
    EXPECT_GE(seen[what], 10U) << what;
  }
  for (const std::string& kernel : elementwise_kernels()) EXPECT_EQ(seen[kernel], 11U) << kernel;
}

// Every prefix holds all classes in proportion, and half of a class reaches over its sizes.
TEST(CalibrationPlan, AnInterruptedRunIsEven) {
  const std::vector<CalibrationCall> plan = calibration_plan(all_classes(), false);
  std::map<CallClass, std::size_t> all, half;
  std::int64_t longest = 0, shortest = INT64_MAX, longest_of_half = 0, shortest_of_half = INT64_MAX;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    ++all[plan[i].call_class];
    const std::int64_t flop = 2 * plan[i].m * plan[i].n * plan[i].k;
    if (flop > 0) longest = std::max(longest, flop), shortest = std::min(shortest, flop);
    if (i >= plan.size() / 2) continue;
    ++half[plan[i].call_class];
    if (flop > 0)
      longest_of_half = std::max(longest_of_half, flop), shortest_of_half = std::min(shortest_of_half, flop);
  }
  for (const auto& [call_class, count] : all) {
    EXPECT_NEAR(static_cast<double>(half[call_class]), static_cast<double>(count) / 2, 1) << class_name(call_class);
  }
  EXPECT_GE(2 * longest_of_half, longest);
  EXPECT_LE(shortest_of_half, 2 * shortest);
}

TEST(CalibrationPlan, QuickTakesTheFirstOfEachClass) {
  const std::vector<CalibrationCall> quick = calibration_plan(all_classes(), true);
  std::map<CallClass, std::size_t> counts;
  for (const CalibrationCall& call : quick) ++counts[call.call_class];
  for (const auto& [call_class, count] : counts) EXPECT_LE(count, kQuickCalls) << class_name(call_class);
  EXPECT_EQ(counts.size(), 7U);
  EXPECT_EQ(calibration_plan({CallClass::kGemm}, true).front(), calibration_plan({CallClass::kGemm}, false).front());
}

// 141 GB less context, NCCL, scratch of the libraries and what a second process may hold.
TEST(CalibrationPlan, FitsTheDevice) {
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    EXPECT_LE(operand_bytes(call), std::int64_t{16} << 30) << describe(call);
    EXPECT_GT(operand_bytes(call) + (call.call_class == CallClass::kLaunch ? 1 : 0), 0) << describe(call);
  }
}

// The promise is eight minutes with the overlap table; the rows have to be done in six.
TEST(CalibrationPlan, IsMeasuredInSixMinutes) {
  std::map<CallClass, double> seconds;
  double total = 0, longest = 0;
  for (const CalibrationCall& call : calibration_plan(all_classes(), false)) {
    const double call_seconds = predicted_call_seconds(call, h200_model());
    longest = std::max(longest, call_seconds);
    seconds[call.call_class] += predicted_row_seconds(call, call_seconds, {});
    total += predicted_row_seconds(call, call_seconds, {});
  }
  for (const auto& [call_class, sum] : seconds) {
    RecordProperty(std::string(class_name(call_class)), std::to_string(sum));
    std::printf("%s: %.1f s\n", std::string(class_name(call_class)).c_str(), sum);
  }
  std::printf("all: %.1f s, longest call %.1f ms\n", total, 1e3 * longest);
  EXPECT_LE(total, 360);
  EXPECT_GE(total, 60);     // else the prediction forgot something
  EXPECT_LE(longest, 0.1);  // no call eats the time of all others
}

// GEMM of 1 ms by a model that says so: 2 warm-ups, 20 samples of 1.15 ms are below 0.04 s, so 0.04 s cold; batches of
// 0.1 s and a start; 0.01 s to prepare.
TEST(Budget, AddsWhatARowTakes) {
  CalibrationCall call;
  LoopLimits limits;
  EXPECT_NEAR(predicted_row_seconds(call, 1e-3, limits), 0.01 + 0.002 + 0.04 + 0.10015, 1e-9);
  // 100 ms: the loop's half second, and one sample over; two calls of batch.
  EXPECT_NEAR(predicted_row_seconds(call, 0.1, limits), 0.01 + 0.2 + 0.60015 + 0.2, 1e-9);
  call.call_class = CallClass::kAttention;
  EXPECT_NEAR(predicted_row_seconds(call, 0.1, limits), 0.01 + 0.2 + 0.60015 + 0.2 + kPlanSeconds, 1e-9);
}

TEST(CallClasses, ParsedByNameInOrder) {
  EXPECT_THAT(*parse_classes({"copy", "gemm", "copy"}, "--only"), ElementsAre(CallClass::kGemm, CallClass::kCopy));
  EXPECT_EQ(all_classes().size(), static_cast<std::size_t>(kCallClassCount));
  const auto wrong = parse_classes({"gem", "copy", "x"}, "--only");
  ASSERT_FALSE(wrong);
  ASSERT_EQ(wrong.error().size(), 2U);
  EXPECT_EQ(wrong.error()[0].to_string(),
            "<command line>: --only: has \"gem\"; expected gemm, attention, varlen, diffusion, elementwise, copy, "
            "launch, overlap, collectives; did you mean \"gemm\"?");
  EXPECT_THAT(wrong.error()[1].to_string(), HasSubstr("has \"x\""));
}

TEST(Describe, NamesTheCall) {
  CalibrationCall gemm;
  gemm.op = "gemm";
  gemm.pass = "fwd";
  gemm.m = 4096;
  gemm.n = 14336;
  gemm.k = 8;
  EXPECT_EQ(describe(gemm), "gemm fwd 4096x14336x8");
  CalibrationCall attention;
  attention.call_class = CallClass::kVarlen;
  attention.op = "attention";
  attention.pass = "bwd";
  attention.q_heads = 32;
  attention.kv_heads = 8;
  attention.head_dim = 128;
  attention.mask = "causal";
  attention.pieces = std::string(60, '1');
  EXPECT_EQ(describe(attention), "attention bwd causal 32/8 heads of 128, " + std::string(48, '1') + "...");
}

}  // namespace
}  // namespace longhaul
