// Gates of a team's CI: is the prediction still right, and has a kernel become slower than in an earlier run?
//
// Prediction: a row fails if the whole measured interval lies further from the prediction than `max_error` allows.
// Slow-down: kernels (label and pass) of both runs are compared, each call as a part of its median in the baseline.
//   1. What all kernels of a repeat share (clocks, temperature) is the median over kernels of their parts (of a kernel:
//      the median over its calls). It is divided out of every kernel where there are at least three, and judged as a
//      row of its own.
//   2. A kernel gives up to four samples a repeat, medians of its calls dealt out in turn: single outliers spoil none.
//      ratio = Hodges-Lehmann centre of now / before, with the Mann-Whitney interval at kGateConfidence.
//   3. A kernel fails if ratio > 1 + max_slowdown and the interval lies above 1. It is undecided if only the first
//      holds: it looks slower, but noise would explain it, and more repeats would tell.
// A slow-down of fewer than half of a kernel's calls shows in the undisturbed step alone.
// docs/validation.md derives the defaults; tests/property/validate/gates_property.cpp measures the rates.
// Pure functions: no clock, no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "validate/device/run_record.h"
#include "validate/report/comparison.h"

namespace longhaul {

inline constexpr double kDefaultMaxSlowdown = 0.04;
inline constexpr double kGateConfidence = 0.9998;  // two-sided: 1e-4 on each side; 8 repeats of both runs reach it
inline constexpr double kLeastShare = 0.02;        // smaller parts of the kernel time are shown, not gated

enum class Verdict : std::uint8_t { kPass, kFail, kUndecided };
const char* to_string(Verdict verdict);  // "pass", "FAIL", "undecided"

struct GateCheck {
  std::string suite;  // "numerics", "prediction", "slow-down"
  std::string name;   // "gemm forward", "rank 3", "step", "qkv (forward)"
  Verdict verdict = Verdict::kPass;
  double value = 0, low = 0, high = 0;  // error, or ratio - 1
  double limit = 0;
  std::string message;  // one sentence
};

struct GateReport {
  std::vector<GateCheck> checks;
  std::vector<std::string> remarks;  // drivers that differ, kernels that only one run has
  int count(Verdict verdict) const;
  bool failed() const { return count(Verdict::kFail) > 0; }
};

// Every numerics result and, with `max_error`, op kinds of at least kLeastShare, ranks, the step and peak memory.
void gate_numerics(const Comparison& comparison, GateReport& report);
void gate_prediction(const Comparison& comparison, double max_error, GateReport& report);

// What makes `before` no baseline of `now`: another study, case, strategy, schedule, device, placement or rank count;
// a run that failed or has no repeats. Each an error of `file`.
Errors baseline_faults(const RunRecord& now, const RunRecord& before, const std::string& file);

// Neither run may have baseline_faults.
void gate_slowdown(const RunRecord& now, const RunRecord& before, double max_slowdown, GateReport& report);

}  // namespace longhaul
