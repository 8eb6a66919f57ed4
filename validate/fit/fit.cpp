#include "validate/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/core/invariant.h"
#include "validate/fit/least_squares.h"
#include "validate/fit/residuals.h"

namespace longhaul {
namespace {

// Calls under this time are launch jitter more than work: reported apart, with residuals of their own. The dense
// attention rows went through PyTorch, whose host time reaches further.
double small_call_seconds(KernelKind kind) {
  switch (kind) {
    case KernelKind::kAttentionForwardDense:
      return 1e-4;
    case KernelKind::kAttentionBackwardDense:
      return 5e-4;
    default:
      return 5e-5;
  }
}

// GEMM and ragged attention are fitted by squares. The dense attention rows are few and carry host outliers (the
// backward of 512 tokens took longer than that of 1,024), and half of the copies and element-wise rows are launch
// jitter: there the sum of absolute errors keeps outliers from bending the rate.
Loss loss_of(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm:
    case KernelKind::kAttentionForwardRagged:
    case KernelKind::kAttentionBackwardRagged:
      return Loss::kSquared;
    default:
      return Loss::kAbsolute;
  }
}

// Datasheet of the H200 SXM (NVIDIA H200 data sheet, 2024): dense bf16 989.4 TFLOP/s, 4.8 TB/s, 132 multiprocessors,
// PCIe 5.0 x16 63 GB/s one way (after 128/130 coding), NVLink 450 GB/s one way. As topologies/devices/h200.json.
constexpr double kPeak = 989.4e12;
constexpr double kMemory = 4.8e12;
constexpr double kHostLink = 63e9;
constexpr int kMultiprocessors = 132;

OverlapDevice overlap_device(const Calibration& calibration) {
  const double per_byte = calibration.kernel(KernelKind::kCopyDeviceToDevice).constants[1];
  return {kMultiprocessors, BytesPerSecond{1 / per_byte}, BytesPerSecond{kHostLink}};
}

// A ragged backward takes at least as long a call as a ragged forward. All its rows are long, so a fit alone finds no
// time per call at all. Kinds are fitted in the order of their enumerators: the forward is there.
double known_call_seconds(KernelKind kind, const Calibration& calibration) {
  if (kind != KernelKind::kAttentionBackwardRagged) return 0;
  return calibration.kernel(KernelKind::kAttentionForwardRagged).constants[0];
}

struct Split {
  std::vector<double> measured;
  std::vector<double> predicted;
};

void fit_kind(KernelKind kind, Fit& fit) {
  std::vector<std::size_t> rows;
  std::vector<Observation> observations;
  const double known = known_call_seconds(kind, fit.calibration);
  for (std::size_t i = 0; i < fit.rows.size(); ++i) {
    if (fit.rows[i].call.kind != kind) continue;
    rows.push_back(i);
    observations.push_back({fit.rows[i].call.terms, fit.rows[i].seconds, known});
  }
  LH_ASSERT(rows.size() >= 2, "{} has {} rows", kernel_kind_name(kind), rows.size());
  const int count = static_cast<int>(kernel_terms(kind).size());
  KernelCalibration& out = fit.calibration.kernel(kind);
  out.constants = fit_constants(observations, count, loss_of(kind));
  out.constants[0] += known;
  out.small_call_seconds = small_call_seconds(kind);
  const std::vector<double> left_out = leave_one_out(observations, count, loss_of(kind));
  Split parts[2];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fit.left_out[rows[i]] = left_out[i];
    fit.fitted[rows[i]] = predict(out.constants, observations[i].terms);
    Split& part = parts[left_out[i] < out.small_call_seconds ? 0 : 1];
    part.measured.push_back(observations[i].measured);
    part.predicted.push_back(left_out[i]);
    out.measured.push_back(fit.rows[rows[i]].call.key);
  }
  std::sort(out.measured.begin(), out.measured.end());
  LH_ASSERT(!parts[1].measured.empty(), "{} has no large call", kernel_kind_name(kind));
  out.large = band_of(parts[1].measured, parts[1].predicted);
  out.small = parts[0].measured.empty() ? out.large : band_of(parts[0].measured, parts[0].predicted);
}

// What of a class's per-call constant a busy stream hides. The shortest call of all tables holds little but launch and
// event latency; every class hides as much. What dense attention takes per call beyond a ragged call (which was made
// without PyTorch) is the framework's host time and hidden as well.
void split_call_times(Fit& fit) {
  double latency = fit.rows.front().seconds;
  for (const MeasuredCall& row : fit.rows) latency = std::min(latency, row.seconds);
  Calibration& calibration = fit.calibration;
  for (int i = 0; i < kKernelKindCount; ++i) {
    KernelCalibration& kernel = calibration.kernel(static_cast<KernelKind>(i));
    kernel.timed_alone_seconds = std::min(kernel.constants[0], latency);
  }
  const KernelCalibration& ragged = calibration.kernel(KernelKind::kAttentionForwardRagged);
  const double on_device = ragged.constants[0] - ragged.timed_alone_seconds;
  for (const KernelKind kind : {KernelKind::kAttentionForwardDense, KernelKind::kAttentionBackwardDense}) {
    KernelCalibration& dense = calibration.kernel(kind);
    dense.timed_alone_seconds = std::max(dense.constants[0] - on_device, dense.timed_alone_seconds);
  }
  // Between the two events the host makes two submissions: the launch and the second event.
  calibration.launch_seconds = latency / 2;
}

}  // namespace

Expected<Fit> fit_h200(const std::string& directory) {
  Expected<std::vector<MeasuredCall>> rows = read_measured_calls(directory, kMultiprocessors);
  Expected<std::vector<OverlapRow>> overlap = read_overlap_rows(directory);
  const Expected<std::vector<OverlapRow>> transfers = read_transfer_rows(directory + "x2");
  OverlapConstants prior;
  const Expected<void> holds = read_holds(directory + "x2", prior);
  Errors errors;
  if (!rows) errors.insert(errors.end(), rows.error().begin(), rows.error().end());
  if (!overlap) errors.insert(errors.end(), overlap.error().begin(), overlap.error().end());
  if (!transfers) errors.insert(errors.end(), transfers.error().begin(), transfers.error().end());
  if (!holds) errors.insert(errors.end(), holds.error().begin(), holds.error().end());
  if (!errors.empty()) return tl::unexpected(std::move(errors));

  Fit fit;
  fit.rows = std::move(*rows);
  fit.fitted.resize(fit.rows.size());
  fit.left_out.resize(fit.rows.size());
  fit.data_files = {"validate/data/h200/gemm_bf16.csv",
                    "validate/data/h200/attention.csv",
                    "validate/data/h200/cudnn_varlen.csv",
                    "validate/data/h200/elementwise.csv",
                    "validate/data/h200/copy.csv",
                    "validate/data/h200/overlap.csv",
                    "validate/data/h200x2/overlap.csv",
                    "validate/data/h200x2/overlap_attention_covered.csv",
                    "validate/data/h200x2/overlap_covered.csv"};
  Calibration& calibration = fit.calibration;
  calibration.name = "h200";
  calibration.date = "2026-11-29";
  calibration.machine = "one H200 SXM, driver 580, CUDA 13.0, PyTorch 2.11, cuDNN 9.19 (ragged calls 9.14)";
  calibration.peak_flops_per_second = kPeak;
  calibration.memory_bytes_per_second = kMemory;
  calibration.host_link_bytes_per_second = kHostLink;
  calibration.multiprocessors = kMultiprocessors;
  for (int i = 0; i < kKernelKindCount; ++i) fit_kind(static_cast<KernelKind>(i), fit);
  overlap->insert(overlap->end(), transfers->begin(), transfers->end());
  fit.overlap = fit_overlap(std::move(*overlap), overlap_device(calibration), prior);
  calibration.overlap = fit.overlap.constants;
  calibration.overlap_residuals = fit.overlap.residuals;
  split_call_times(fit);
  return fit;
}

std::string report(const Fit& fit) {
  constexpr double kSmall = 5e-5;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> groups;  // errors: all, >= 0.05 ms
  for (std::size_t i = 0; i < fit.rows.size(); ++i) {
    const double error = 100 * std::abs(fit.left_out[i] / fit.rows[i].seconds - 1);
    auto& [all, large] = groups[fit.rows[i].group];
    all.push_back(error);
    if (fit.rows[i].seconds >= kSmall) large.push_back(error);
    if (fit.rows[i].group.starts_with("gemm")) {
      auto& [all_gemm, large_gemm] = groups["gemm, all passes"];
      all_gemm.push_back(error);
      if (fit.rows[i].seconds >= kSmall) large_gemm.push_back(error);
    }
  }
  std::string out = fmt::format("{:<28} {:>28} {:>30}\n", "leave-one-out error, %", ">= 0.05 ms: rows median p90 max",
                                "all: rows median p90 max");
  for (const auto& [name, errors] : groups) {
    out += fmt::format("{:<28}", name);
    for (const std::vector<double>* part : {&errors.second, &errors.first}) {
      if (part->empty()) {
        out += fmt::format(" {:>10} {:>6} {:>6} {:>6}", 0, "-", "-", "-");
      } else {
        out += fmt::format(" {:>10} {:>6.2f} {:>6.2f} {:>6.2f}", part->size(), quantile(*part, 0.5),
                           quantile(*part, 0.9), quantile(*part, 1));
      }
    }
    out += "\n";
  }
  return out + report(fit.overlap);
}

}  // namespace longhaul
