#include "validate/report/gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"
#include "validate/report/op_pairs.h"
#include "validate/report/repeats.h"
#include "validate/report/units.h"

namespace longhaul {
namespace {

constexpr double kPicosecond = 1e-12;

// --- Prediction -----------------------------------------------------------------------------------------------------

void check_row(const ComparedRow& row, const std::string& name, double max_error, bool is_bytes, GateReport& report) {
  if (row.source == Source::kModel || row.measured <= 0) return;
  GateCheck check{"prediction", name, Verdict::kPass, row.error(), 0, 0, max_error, ""};
  check.low = row.predicted / row.measured_high - 1;
  check.high = row.measured_low > 0 ? row.predicted / row.measured_low - 1 : check.value;
  const bool beyond = check.value > max_error || check.value < -max_error;
  const bool surely = check.low > max_error || check.high < -max_error;
  if (beyond) check.verdict = surely ? Verdict::kFail : Verdict::kUndecided;
  const auto amount = [&](double value) { return is_bytes ? bytes_text(value) : seconds_text(value); };
  check.message = fmt::format(
      "{}: predicted {}, {} {} ({} to {}): {}, allowed {:g} %{}", name, amount(row.predicted), to_string(row.source),
      amount(row.measured), amount(row.measured_low), amount(row.measured_high), percent_text(check.value),
      100 * max_error, check.verdict == Verdict::kUndecided ? "; noise could explain it, measure more repeats" : "");
  report.checks.push_back(std::move(check));
}

// --- Slow-down ------------------------------------------------------------------------------------------------------

// What is compared: samples of both runs in any unit.
struct Series {
  std::string name;
  std::vector<double> now, before;
  std::string kernel_now, kernel_before;
};

// The calls of one kernel that both runs have: [call][repeat], as parts of the call's median time before.
struct KernelCalls {
  std::string name;
  std::vector<std::vector<double>> now, before;
  std::string kernel_now, kernel_before;
};

using Place = std::pair<std::int32_t, std::int32_t>;  // rank, position

struct Pairing {
  std::vector<KernelCalls> kernels;  // in the order in which `now` has them
  std::size_t alone = 0;             // ops that only one run has timed
};

// A device's events may show a kernel of no time at all; ratios need more.
std::vector<double> parts_of(const std::vector<double>& seconds, double whole) {
  std::vector<double> parts;
  for (const double one : seconds) parts.push_back(std::max(one, kPicosecond) / whole);
  return parts;
}

Pairing pair_calls(const RunRecord& now, const RunRecord& before) {
  const std::vector<std::vector<double>> now_seconds = op_seconds(now), before_seconds = op_seconds(before);
  std::map<Place, std::size_t> there;
  for (std::size_t i = 0; i < before.ops.size(); ++i) {
    if (!before_seconds[i].empty()) there.emplace(Place{before.ops[i].rank, before.ops[i].position}, i);
  }
  Pairing pairing;
  std::map<std::string, std::size_t> index;
  std::size_t matched = 0;
  for (std::size_t i = 0; i < now.ops.size(); ++i) {
    const MeasuredOp& op = now.ops[i];
    if (now_seconds[i].empty()) continue;
    const auto found = there.find({op.rank, op.position});
    if (found == there.end()) {
      ++pairing.alone;
      continue;
    }
    ++matched;
    const std::string name = fmt::format("{} ({})", op.label, to_string(op.pass));
    const auto [at, fresh] = index.try_emplace(name, pairing.kernels.size());
    if (fresh) pairing.kernels.push_back({name, {}, {}, op.kernel, before.ops[found->second].kernel});
    KernelCalls& kernel = pairing.kernels[at->second];
    const double whole = std::max(kPicosecond, median(before_seconds[found->second]));
    kernel.now.push_back(parts_of(now_seconds[i], whole));
    kernel.before.push_back(parts_of(before_seconds[found->second], whole));
  }
  pairing.alone += there.size() - matched;
  return pairing;
}

// At most `bundles` values a repeat: medians of calls dealt out in turn, so that an outlier spoils no repeat. Each is
// divided by what all kernels of the repeat share (empty: nothing is).
std::vector<double> samples_of(const std::vector<std::vector<double>>& calls, std::size_t bundles,
                               const std::vector<double>& shared) {
  std::vector<double> samples;
  const std::size_t count = std::min(bundles, calls.size());
  for (std::size_t r = 0; r < calls.front().size(); ++r) {
    for (std::size_t b = 0; b < count; ++b) {
      std::vector<double> bundle;
      for (std::size_t call = b; call < calls.size(); call += count) bundle.push_back(calls[call][r]);
      samples.push_back(median(std::move(bundle)) / (shared.empty() ? 1 : shared[r]));
    }
  }
  return samples;
}

// What all kernels of each repeat share: the median over kernels of their parts.
std::vector<double> shared_factor(const std::vector<KernelCalls>& kernels,
                                  std::vector<std::vector<double>> KernelCalls::*run) {
  std::vector<std::vector<double>> by_kernel;
  for (const KernelCalls& kernel : kernels) by_kernel.push_back(samples_of(kernel.*run, 1, {}));
  return samples_of(by_kernel, 1, {});
}

GateCheck check_series(const Series& series, double max_slowdown, const std::string& what) {
  const RatioInterval ratio = ratio_interval(series.now, series.before, kGateConfidence);
  GateCheck check{"slow-down",   series.name,    Verdict::kPass, ratio.ratio - 1,
                  ratio.low - 1, ratio.high - 1, max_slowdown,   ""};
  const bool beyond = ratio.ratio > 1 + max_slowdown;
  if (beyond) check.verdict = ratio.bounded && ratio.low > 1 ? Verdict::kFail : Verdict::kUndecided;
  const char* doubt = check.verdict != Verdict::kUndecided ? ""
                      : ratio.bounded                      ? "; noise could explain it, measure more repeats"
                                                           : "; too few repeats to tell, measure at least 8";
  check.message = fmt::format("{}: {} ({} to {}){}, allowed {:+g} %{}", series.name, percent_text(check.value),
                              percent_text(check.low), percent_text(check.high), what, 100 * max_slowdown, doubt);
  if (series.kernel_now != series.kernel_before) {
    check.message += fmt::format("; it ran {} before and runs {} now", series.kernel_before, series.kernel_now);
  }
  return check;
}

void check_kernels(const std::vector<KernelCalls>& kernels, double max_slowdown, GateReport& report) {
  constexpr std::size_t kLeastForShared = 3;
  constexpr std::size_t kBundles = 4;
  std::vector<double> now, before;  // shared factors
  const bool shares = kernels.size() >= kLeastForShared;
  if (shares) {
    now = shared_factor(kernels, &KernelCalls::now);
    before = shared_factor(kernels, &KernelCalls::before);
    report.checks.push_back(check_series({"all kernels", now, before, "", ""}, max_slowdown,
                                         ", what all kernels share: clocks, power, temperature, driver"));
  }
  // Calls of one repeat are independent only once what they share is divided out.
  const std::size_t bundles = shares ? kBundles : 1;
  for (const KernelCalls& kernel : kernels) {
    const Series series{kernel.name, samples_of(kernel.now, bundles, now), samples_of(kernel.before, bundles, before),
                        kernel.kernel_now, kernel.kernel_before};
    report.checks.push_back(check_series(series, max_slowdown, shares ? " against the other kernels" : ""));
  }
}

void add_seconds(std::vector<double>& sum, const std::vector<double>& seconds) {
  sum.resize(seconds.size(), 0.0);
  for (std::size_t r = 0; r < seconds.size(); ++r) sum[r] += seconds[r];
}

// Undisturbed steps: of the machine, or of virtual ranks one after another.
std::vector<double> undisturbed(const RunRecord& record) {
  std::vector<double> seconds;
  const auto add = [&](const std::vector<std::int64_t>& ps) {
    std::vector<double> one;
    for (const std::int64_t value : ps) one.push_back(std::max(kPicosecond, static_cast<double>(value) * kPicosecond));
    add_seconds(seconds, one);
  };
  if (record.placement == RankPlacement::kReal) {
    add(record.step_ps);
    return seconds;
  }
  for (const RankRun& run : record.rank_runs) {
    if (run.step_ps.size() == static_cast<std::size_t>(record.repeats)) add(run.step_ps);
  }
  return seconds;
}

std::int64_t peak_bytes(const RunRecord& record) {
  std::int64_t peak = 0;
  for (const RankRun& run : record.rank_runs) {
    peak = std::max(peak, run.device_peak_bytes > 0 ? run.device_peak_bytes : run.arena_bytes + run.scratch_bytes);
  }
  return peak;
}

void check_memory(const RunRecord& now, const RunRecord& before, double limit, GateReport& report) {
  const auto is = static_cast<double>(peak_bytes(now));
  const auto was = static_cast<double>(peak_bytes(before));
  if (was <= 0 || is <= 0) return;
  GateCheck check{"slow-down", "peak memory", Verdict::kPass, is / was - 1, is / was - 1, is / was - 1, limit, ""};
  if (check.value > limit) check.verdict = Verdict::kFail;
  check.message = fmt::format("peak memory: {} after {}: {}, allowed {:+g} %", bytes_text(is), bytes_text(was),
                              percent_text(check.value), 100 * limit);
  report.checks.push_back(std::move(check));
}

void remark_versions(const RunRecord& now, const RunRecord& before, GateReport& report) {
  const auto differs = [&](const char* what, const std::string& is, const std::string& was) {
    if (is != was) report.remarks.push_back(fmt::format("{}: {} now, {} in the baseline", what, is, was));
  };
  differs("driver", now.hardware.driver, before.hardware.driver);
  differs("CUDA", now.hardware.cuda, before.hardware.cuda);
  differs("cuBLAS", now.hardware.cublas, before.hardware.cublas);
  differs("cuDNN", now.hardware.cudnn, before.hardware.cudnn);
  differs("NCCL", now.hardware.nccl, before.hardware.nccl);
  differs("highest SM clock, MHz", fmt::format("{}", now.hardware.sm_clock_mhz),
          fmt::format("{}", before.hardware.sm_clock_mhz));
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "";
}

int GateReport::count(Verdict verdict) const {
  return static_cast<int>(
      std::count_if(checks.begin(), checks.end(), [&](const GateCheck& check) { return check.verdict == verdict; }));
}

void gate_numerics(const Comparison& comparison, GateReport& report) {
  for (const NumericsResult& one : comparison.numerics) {
    GateCheck check{"numerics",
                    one.quantity + " against " + one.reference,
                    one.pass ? Verdict::kPass : Verdict::kFail,
                    one.error,
                    one.error,
                    one.error,
                    one.limit,
                    ""};
    check.message = fmt::format("{}: {:.2e}, allowed {:.2e}{}, {} elements{}{}", check.name, one.error, one.limit,
                                one.limit < kErrorOfZeros ? "" : " (from a broken undistributed step: nothing)",
                                one.elements, one.missing > 0 ? fmt::format(", {} on no rank", one.missing) : "",
                                one.worst.empty() ? "" : ", worst at " + one.worst);
    report.checks.push_back(std::move(check));
  }
}

void gate_prediction(const Comparison& comparison, double max_error, GateReport& report) {
  for (const ComparedRow& row : comparison.kinds) {
    if (row.share >= kLeastShare) check_row(row, row.name, max_error, false, report);
  }
  for (const ComparedRow& row : comparison.rank_compute) {
    check_row(row, "compute of " + row.name, max_error, false, report);
  }
  for (const ComparedRow& row : comparison.collectives) {
    if (row.share >= kLeastShare) check_row(row, row.name, max_error, false, report);
  }
  check_row(comparison.step, comparison.step.name, max_error, false, report);
  for (const ComparedRow& row : comparison.peak_memory) {
    check_row(row, "peak memory of " + row.name, max_error, true, report);
  }
}

Errors baseline_faults(const RunRecord& now, const RunRecord& before, const std::string& file) {
  Errors errors;
  const auto expect = [&](const char* path, const std::string& is, const std::string& wanted, const char* what) {
    if (is == wanted) return;
    errors.push_back({file, path, fmt::format("is a run of {} \"{}\"", what, is),
                      fmt::format("\"{}\", as in the run that it is compared with", wanted), ""});
  };
  expect("/identity/study", before.identity.study, now.identity.study, "study");
  expect("/identity/case", before.identity.study_case, now.identity.study_case, "case");
  expect("/identity/strategy", before.identity.strategy, now.identity.strategy, "strategy");
  expect("/hardware/device", before.hardware.device, now.hardware.device, "device");
  expect("/placement", to_string(before.placement), to_string(now.placement), "placement");
  expect("/ranks", fmt::format("{}", before.ranks), fmt::format("{}", now.ranks), "rank count");
  if (errors.empty() && before.identity.fingerprint != now.identity.fingerprint) {
    errors.push_back(
        {file, "/identity/fingerprint",
         fmt::format("is another schedule, made by Longhaul {} of {}", before.identity.version, before.identity.date),
         "a baseline of this schedule: measure it again after a change of study, strategy or Longhaul", ""});
  }
  if (!before.failure.kind.empty()) {
    errors.push_back({file, "/failure/kind", fmt::format("the run ended early ({})", before.failure.kind),
                      "a run that was completed", ""});
  }
  if (before.repeats < 1) {
    errors.push_back({file, "/repeats", fmt::format("is {}", before.repeats), "at least one timed repeat", ""});
  }
  return errors;
}

void gate_slowdown(const RunRecord& now, const RunRecord& before, double max_slowdown, GateReport& report) {
  LH_ASSERT(now.repeats > 0 && before.repeats > 0, "a gate over {} and {} repeats", now.repeats, before.repeats);
  const Pairing pairing = pair_calls(now, before);
  if (pairing.alone > 0) {
    report.remarks.push_back(
        fmt::format("{} ops were timed in one of the runs only; they are not compared", pairing.alone));
  }
  remark_versions(now, before, report);
  check_kernels(pairing.kernels, max_slowdown, report);
  const Series step{"undisturbed step", undisturbed(now), undisturbed(before), "", ""};
  if (!step.now.empty() && !step.before.empty()) report.checks.push_back(check_series(step, max_slowdown, ""));
  check_memory(now, before, max_slowdown, report);
}

}  // namespace longhaul
