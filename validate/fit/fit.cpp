#include "validate/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "sim/core/order_statistics.h"
#include "validate/fit/h200_tables.h"
#include "validate/fit/least_squares.h"
#include "validate/fit/residuals.h"
#include "validate/fit/row_class.h"

namespace longhaul {
namespace {

OverlapDevice overlap_device(const Calibration& calibration) {
  const double per_byte = calibration.kernel(KernelKind::kCopyDeviceToDevice).constants[1];
  return {static_cast<int>(calibration.multiprocessors), BytesPerSecond{1 / per_byte},
          BytesPerSecond{calibration.host_link_bytes_per_second}};
}

// Median of what rows of a class that were timed by events take longer than the fit says, over calls that are short
// enough to tell; not below 0.
double event_latency(const std::vector<KernelRow>& aside, const Calibration& calibration, const std::string& name) {
  constexpr double kShort = 1e-4;
  std::vector<double> longer;
  for (const KernelRow& row : aside) {
    if (!row.with_launch || row.seconds >= kShort) continue;
    const std::optional<RowClass> of = row_class(row, static_cast<int>(calibration.multiprocessors));
    if (of && of->name == name) {
      longer.push_back(row.seconds - predict(calibration.find(name)->constants, of->call.terms));
    }
  }
  return longer.empty() ? 0 : std::max(quantile(longer, 0.5), 0.0);
}

// Calls timed alone by events show launch and event latency: that of GEMMs for every kernel, copies have their own.
void add_event_latency(const std::vector<KernelRow>& aside, Calibration& calibration) {
  const double kernel_latency = event_latency(aside, calibration, "gemm");
  for (auto& [name, kernel] : calibration.classes) {
    const bool copy = name.starts_with("copy-");
    kernel.timed_alone_seconds = copy ? event_latency(aside, calibration, name) : kernel_latency;
    kernel.constants[0] += kernel.timed_alone_seconds;
  }
}

}  // namespace

// NVIDIA H200 data sheet, 2024: dense bf16 989.4 TFLOP/s, 4.8 TB/s, 132 multiprocessors, PCIe 5.0 x16 63 GB/s one way
// (after 128/130 coding).
MeasuredDevice h200_device() {
  MeasuredDevice device;
  device.name = "h200";
  device.date = "2026-11-30";
  device.machine = "one H200 SXM, driver 580, CUDA 13.0, cuBLASLt 13.1, cuDNN 9.19";
  device.peak_flops_per_second = 989.4e12;
  device.memory_bytes_per_second = 4.8e12;
  device.host_link_bytes_per_second = 63e9;
  device.multiprocessors = 132;
  return device;
}

Expected<Fit> fit_h200(const std::string& directory) {
  const Expected<std::vector<KernelRow>> rows = read_h200_rows(directory);
  const Expected<std::vector<KernelRow>> aside = read_h200_aside(directory);
  Expected<std::vector<OverlapRow>> overlap = read_overlap_rows(directory);
  const Expected<std::vector<OverlapRow>> transfers = read_transfer_rows(directory + "x2");
  OverlapConstants prior;
  const Expected<void> holds = read_holds(directory + "x2", prior);
  Errors errors;
  if (!rows) append(errors, rows.error());
  if (!aside) append(errors, aside.error());
  if (!overlap) append(errors, overlap.error());
  if (!transfers) append(errors, transfers.error());
  if (!holds) append(errors, holds.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));

  Expected<KernelFit> kernels = fit_kernels(h200_device(), *rows, Calibration{});
  if (!kernels) return tl::unexpected(kernels.error());
  Fit fit;
  fit.kernels = std::move(*kernels);
  fit.data_files = h200_row_files();
  for (const char* file :
       {"validate/data/h200/overlap.csv", "validate/data/h200x2/overlap.csv",
        "validate/data/h200x2/overlap_attention_covered.csv", "validate/data/h200x2/overlap_covered.csv"}) {
    fit.data_files.emplace_back(file);
  }
  Calibration& calibration = fit.kernels.calibration;
  overlap->insert(overlap->end(), transfers->begin(), transfers->end());
  fit.overlap = fit_overlap(std::move(*overlap), overlap_device(calibration), prior);
  calibration.overlap = fit.overlap.constants;
  calibration.overlap_residuals = fit.overlap.residuals;
  add_event_latency(*aside, calibration);
  return fit;
}

std::string report(const Fit& fit) {
  constexpr double kSmall = 5e-5;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> groups;  // errors: all, >= 0.05 ms
  for (const FittedRow& row : fit.kernels.rows) {
    if (row.kernel_class.empty()) continue;
    const double error = 100 * std::abs(row.held_out / row.row.seconds - 1);
    auto& [all, large] = groups[row.kernel_class];
    all.push_back(error);
    if (row.row.seconds >= kSmall) large.push_back(error);
  }
  std::string out = fmt::format("{:<42} {:>28} {:>30}\n", "held-out error, %", ">= 0.05 ms: rows median p90 max",
                                "all: rows median p90 max");
  for (const auto& [name, errors] : groups) {
    out += fmt::format("{:<42}", name);
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
