// Gates: thresholds, doubt, texts, and what is no baseline.
#include "validate/report/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/report/synthetic_run.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

const std::vector<MadeKernel> kKernels = {
    {"qkv", 1e-3, 4}, {"attention", 2e-3, 4}, {"down", 3e-3, 4}, {"norm", 1e-4, 8}};

RunRecord run_of(std::vector<MadeKernel> kernels, double slow = 1, int repeats = 20, double noise = 0) {
  kernels.front().seconds *= slow;
  Rng rng(7, "gates");
  Noise of;
  of.call = noise;
  return made_run(kernels, of, repeats, rng);
}

GateReport judge(const RunRecord& now, const RunRecord& before, double limit = kDefaultMaxSlowdown) {
  GateReport report;
  gate_slowdown(now, before, limit, report);
  return report;
}

const GateCheck& check_of(const GateReport& report, const std::string& name) {
  const auto found =
      std::find_if(report.checks.begin(), report.checks.end(), [&](const auto& one) { return one.name == name; });
  if (found == report.checks.end()) throw std::runtime_error("no check " + name);
  return *found;
}

TEST(SlowdownGate, TheSlowKernelAloneFails) {
  const GateReport report = judge(run_of(kKernels, 1.08), run_of(kKernels));
  EXPECT_TRUE(report.failed());
  const GateCheck& slow = check_of(report, "qkv (forward)");
  EXPECT_EQ(slow.verdict, Verdict::kFail);
  EXPECT_NEAR(slow.value, 0.08, 1e-9);
  EXPECT_EQ(slow.message, "qkv (forward): +8.0 % (+8.0 % to +8.0 %) against the other kernels, allowed +4 %");
  EXPECT_EQ(check_of(report, "attention (forward)").verdict, Verdict::kPass);
  EXPECT_EQ(check_of(report, "all kernels").verdict, Verdict::kPass);
  // 4 x 0.08 ms of 24.8 ms.
  EXPECT_NEAR(check_of(report, "undisturbed step").value, 0.32 / 24.8, 1e-9);
}

TEST(SlowdownGate, TheLimitIsTheUsers) {
  EXPECT_FALSE(judge(run_of(kKernels, 1.08), run_of(kKernels), 0.10).failed());
  EXPECT_TRUE(judge(run_of(kKernels, 1.08), run_of(kKernels), 0.07).failed());
  EXPECT_FALSE(judge(run_of(kKernels, 0.5), run_of(kKernels)).failed());  // faster is no failure
}

TEST(SlowdownGate, TwoKernelsAreNotDividedByEachOther) {
  const std::vector<MadeKernel> two = {kKernels[0], kKernels[1]};
  const GateReport report = judge(run_of(two, 1.08), run_of(two));
  EXPECT_EQ(check_of(report, "qkv (forward)").verdict, Verdict::kFail);
  EXPECT_EQ(check_of(report, "qkv (forward)").message, "qkv (forward): +8.0 % (+8.0 % to +8.0 %), allowed +4 %");
  EXPECT_EQ(check_of(report, "attention (forward)").verdict, Verdict::kPass);
}

TEST(SlowdownGate, TooFewRepeatsAreNoProof) {
  // Of single calls: several calls a repeat give more samples.
  std::vector<MadeKernel> kernels = kKernels;
  for (MadeKernel& kernel : kernels) kernel.calls = 1;
  const GateReport report = judge(run_of(kernels, 1.08, 7), run_of(kernels, 1, 7));
  const GateCheck& slow = check_of(report, "qkv (forward)");
  EXPECT_EQ(slow.verdict, Verdict::kUndecided);
  EXPECT_THAT(slow.message, HasSubstr("too few repeats to tell, measure at least 8"));
  EXPECT_FALSE(report.failed());
  EXPECT_TRUE(judge(run_of(kernels, 1.08, 8), run_of(kernels, 1, 8)).failed());
}

TEST(SlowdownGate, NoiseThatCouldExplainItLeavesItUndecided) {
  // Every second repeat of both runs is 1.2 / 0.8 times as long: +6 % is the centre, the interval is far wider.
  std::vector<MadeKernel> kernels = kKernels;
  kernels.front().calls = 1;
  const auto wavy = [&](double slow) {
    RunRecord record = run_of(kernels, slow);
    MeasuredOp& op = record.ops.front();
    for (std::size_t r = 0; r < op.end_ps.size(); ++r) {
      op.end_ps[r] = op.start_ps[r] + (op.end_ps[r] - op.start_ps[r]) * (r % 2 == 0 ? 8 : 12) / 10;
    }
    return record;
  };
  const GateReport report = judge(wavy(1.06), wavy(1));
  const GateCheck& noisy = check_of(report, "qkv (forward)");
  EXPECT_EQ(noisy.verdict, Verdict::kUndecided) << noisy.message;
  EXPECT_THAT(noisy.message, HasSubstr("noise could explain it, measure more repeats"));
}

TEST(SlowdownGate, KernelsThatChangedAndVersionsAreRemarked) {
  RunRecord before = run_of(kKernels);
  RunRecord now = run_of(kKernels);
  before.hardware.driver = "570.1";
  now.hardware.driver = "580.2";
  for (MeasuredOp& op : before.ops) op.kernel = "cudnn";
  for (MeasuredOp& op : now.ops) op.kernel = "piece_attention";
  now.ops.pop_back();
  const GateReport report = judge(now, before);
  EXPECT_THAT(check_of(report, "qkv (forward)").message, HasSubstr("it ran cudnn before and runs piece_attention now"));
  ASSERT_EQ(report.remarks.size(), 2U);
  EXPECT_EQ(report.remarks[0], "1 ops were timed in one of the runs only; they are not compared");
  EXPECT_EQ(report.remarks[1], "driver: 580.2 now, 570.1 in the baseline");
}

TEST(SlowdownGate, MoreMemoryFails) {
  RunRecord before = run_of(kKernels);
  RunRecord now = run_of(kKernels);
  before.rank_runs.front().arena_bytes = 1'000'000'000;
  now.rank_runs.front().arena_bytes = 1'050'000'000;
  const GateReport report = judge(now, before);
  EXPECT_EQ(check_of(report, "peak memory").verdict, Verdict::kFail);
  EXPECT_EQ(check_of(report, "peak memory").message, "peak memory: 1.050 GB after 1.000 GB: +5.0 %, allowed +4 %");
}

TEST(PredictionGate, OnlyWhatIsSurelyBeyondFails) {
  Comparison of;
  const auto add = [&](const char* name, double predicted, double low, double measured, double high, double share) {
    ComparedRow row;
    row.name = name;
    row.predicted = predicted;
    row.measured = measured;
    row.measured_low = low;
    row.measured_high = high;
    row.share = share;
    of.kinds.push_back(row);
  };
  add("surely", 1.0e-3, 1.19e-3, 1.2e-3, 1.21e-3, 0.5);
  add("perhaps", 1.0e-3, 1.05e-3, 1.2e-3, 1.3e-3, 0.4);
  add("fine", 1.0e-3, 1.0e-3, 1.05e-3, 1.1e-3, 0.09);
  add("small", 1.0e-3, 1.9e-3, 2e-3, 2.1e-3, 0.01);
  GateReport report;
  gate_prediction(of, 0.10, report);
  ASSERT_EQ(report.checks.size(), 3U);  // the small one is shown elsewhere, not gated
  EXPECT_EQ(report.checks[0].verdict, Verdict::kFail);
  EXPECT_EQ(report.checks[0].message,
            "surely: predicted 1.000 ms, measured 1.200 ms (1.190 ms to 1.210 ms): -16.7 %, allowed 10 %");
  EXPECT_EQ(report.checks[1].verdict, Verdict::kUndecided);
  EXPECT_EQ(report.checks[2].verdict, Verdict::kPass);
}

TEST(NumericsGate, WrongNumbersFail) {
  Comparison of;
  NumericsResult wrong;
  wrong.quantity = "dQ";
  wrong.reference = "fp64";
  wrong.error = 0.5;
  wrong.limit = 0.02;
  wrong.elements = 4096;
  wrong.missing = 3;
  wrong.worst = "layer 1, rank 3";
  of.numerics = {wrong};
  GateReport report;
  gate_numerics(of, report);
  ASSERT_TRUE(report.failed());
  EXPECT_EQ(report.checks.front().message,
            "dQ against fp64: 5.00e-01, allowed 2.00e-02, 4096 elements, 3 on no rank, worst at layer 1, rank 3");
  of.numerics.front().limit = 1.2;
  report = {};
  gate_numerics(of, report);
  EXPECT_EQ(report.checks.front().message,
            "dQ against fp64: 5.00e-01, allowed 1.20e+00 (from a broken undistributed step: nothing), 4096 elements, 3 "
            "on no rank, worst at layer 1, rank 3");
}

TEST(BaselineFaults, EveryMismatchAtOnce) {
  RunRecord now = run_of(kKernels);
  now.identity.study = "mine";
  now.identity.study_case = "mine";
  now.identity.strategy = "flashcp";
  now.hardware.device = "NVIDIA H200";
  EXPECT_TRUE(baseline_faults(now, now, "base.json").empty());
  RunRecord before = now;
  before.identity.study = "yours";
  before.identity.strategy = "dpp";
  before.hardware.device = "NVIDIA H100";
  before.placement = RankPlacement::kReal;
  before.ranks = 8;
  before.failure.kind = "hang";
  const Errors errors = baseline_faults(now, before, "base.json");
  ASSERT_EQ(errors.size(), 6U);
  EXPECT_EQ(errors[0].to_string(),
            "base.json: /identity/study: is a run of study \"yours\"; expected \"mine\", as in "
            "the run that it is compared with");
  EXPECT_EQ(errors[2].path, "/hardware/device");
  EXPECT_EQ(errors[5].message, "the run ended early (hang)");
  before = now;
  before.identity.fingerprint = 5;
  ASSERT_EQ(baseline_faults(now, before, "base.json").size(), 1U);
  EXPECT_EQ(baseline_faults(now, before, "base.json").front().message,
            "is another schedule, made by Longhaul 0.1.0 of 2026-01-02");
}

}  // namespace
}  // namespace longhaul
