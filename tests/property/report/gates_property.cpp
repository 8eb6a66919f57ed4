// The slow-down gate under noise: a planted slow-down always fails and is named, runs without change never fail.
//
// Noise of one trial, drawn anew: every call errs by 1 to 3 % (normal), every repeat by up to 1 % for all kernels
// together, the run drifts by up to 2 % and is off by up to 1 % as a whole, and 2 of 100 calls take up to half as long
// again. Six kernels of 10 us to 10 ms, 2 to 8 calls a repeat (two layers have at least two), 20 repeats in both
// runs. 10,000 trials each, seeded: the rates are of these trials, and 0 of 10,000 means below 4 in 10,000 at 95 %.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/report/synthetic_run.h"
#include "validate/report/gates.h"

namespace longhaul {
namespace {

constexpr int kTrials = 10'000;
constexpr int kRepeats = 20;
constexpr int kKernels = 6;
constexpr double kPlanted = 0.08;

Noise draw_noise(Rng& rng) {
  const auto between = [&](double low, double high) { return low + (high - low) * rng.uniform(); };
  Noise noise;
  noise.call = between(0.01, 0.03);
  noise.shared = between(0, 0.01);
  noise.drift = between(-0.02, 0.02);
  noise.offset = between(-0.01, 0.01);
  noise.outliers = 0.02;
  return noise;
}

std::vector<MadeKernel> draw_kernels(Rng& rng, int least_calls) {
  std::vector<MadeKernel> kernels;
  for (int k = 0; k < kKernels; ++k) {
    const double seconds = 1e-5 * std::pow(1000.0, rng.uniform());
    kernels.push_back({"kernel " + std::to_string(k), seconds, static_cast<int>(rng.integer(least_calls, 8))});
  }
  return kernels;
}

GateReport judge(const std::vector<MadeKernel>& before, const std::vector<MadeKernel>& now, Rng& rng) {
  const RunRecord was = made_run(before, draw_noise(rng), kRepeats, rng);
  const RunRecord is = made_run(now, draw_noise(rng), kRepeats, rng);
  GateReport report;
  gate_slowdown(is, was, kDefaultMaxSlowdown, report);
  return report;
}

bool fails(const GateReport& report, const std::string& name) {
  return std::any_of(report.checks.begin(), report.checks.end(),
                     [&](const GateCheck& check) { return check.verdict == Verdict::kFail && check.name == name; });
}

TEST(GateRates, RunsWithoutChangeNeverFail) {
  Rng rng(1, "gates without change");
  int failed = 0, undecided = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<MadeKernel> kernels = draw_kernels(rng, 2);
    const GateReport report = judge(kernels, kernels, rng);
    failed += report.failed() ? 1 : 0;
    undecided += report.count(Verdict::kUndecided) > 0 ? 1 : 0;
  }
  RecordProperty("failed", failed);
  RecordProperty("undecided", undecided);
  EXPECT_EQ(failed, 0) << "of " << kTrials << " trials, " << undecided << " undecided";
  EXPECT_LT(undecided, kTrials / 100);
}

TEST(GateRates, APlantedSlowdownAlwaysFailsAndIsNamed) {
  Rng rng(1, "gates with a slow kernel");
  int missed = 0, others = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<MadeKernel> before = draw_kernels(rng, 2);
    std::vector<MadeKernel> now = before;
    MadeKernel& slow = now[static_cast<std::size_t>(rng.integer(0, kKernels - 1))];
    slow.seconds *= 1 + kPlanted;
    const GateReport report = judge(before, now, rng);
    missed += fails(report, slow.label + " (forward)") ? 0 : 1;
    for (const GateCheck& check : report.checks) {
      const bool kernel = check.name.starts_with("kernel ") && check.name != slow.label + " (forward)";
      others += kernel && check.verdict == Verdict::kFail ? 1 : 0;
    }
  }
  RecordProperty("missed", missed);
  RecordProperty("others", others);
  EXPECT_EQ(missed, 0) << "of " << kTrials;
  EXPECT_EQ(others, 0) << "kernels that were not slower failed, of " << kTrials * (kKernels - 1);
}

// The limit of the method: one call a repeat at 3 %. Such a kernel may be missed in few trials, then undecided or not.
TEST(GateRates, AKernelOfOneNoisyCallIsRarelyMissed) {
  Rng rng(1, "gates with one call");
  int missed = 0, false_alarms = 0;
  constexpr int kFewTrials = 2'000;
  Noise noise = {};
  noise.call = 0.03;
  noise.outliers = 0.02;
  for (int trial = 0; trial < kFewTrials; ++trial) {
    std::vector<MadeKernel> kernels = draw_kernels(rng, 1);
    for (MadeKernel& kernel : kernels) kernel.calls = 1;
    const RunRecord before = made_run(kernels, noise, kRepeats, rng);
    kernels.front().seconds *= 1 + kPlanted;
    const RunRecord now = made_run(kernels, noise, kRepeats, rng);
    GateReport report;
    gate_slowdown(now, before, kDefaultMaxSlowdown, report);
    missed += fails(report, "kernel 0 (forward)") ? 0 : 1;
    for (int k = 1; k < kKernels; ++k) {
      false_alarms += fails(report, "kernel " + std::to_string(k) + " (forward)") ? 1 : 0;
    }
  }
  RecordProperty("missed", missed);
  RecordProperty("false_alarms", false_alarms);
  EXPECT_LT(missed, kFewTrials / 25);  // 2.1 % as seeded, all of them undecided
  EXPECT_LE(false_alarms, kFewTrials * (kKernels - 1) / 10'000);
}

// What clocks do to all kernels is no kernel's fault.
TEST(GateRates, WhatAllKernelsShareFailsAsSuch) {
  Rng rng(1, "gates with a slow clock");
  const std::vector<MadeKernel> before = draw_kernels(rng, 2);
  std::vector<MadeKernel> now = before;
  for (MadeKernel& kernel : now) kernel.seconds *= 1.10;
  const GateReport report = judge(before, now, rng);
  EXPECT_TRUE(fails(report, "all kernels"));
  EXPECT_TRUE(fails(report, "undisturbed step"));
  EXPECT_EQ(report.count(Verdict::kFail), 2);
}

}  // namespace
}  // namespace longhaul
