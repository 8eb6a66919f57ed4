// A calibration: the constants of the kernel model for one measured device, as written by `longhaul-fit`.
//
// File: topologies/devices/calibration/NAME.json, `"schema": "calibration/1"`, JSON Schema in
// topologies/calibration.schema.json. It names the tables and the day on which they were measured. Constants are in
// seconds per term (sim/cost/kernel_features.h). Residuals are measured / predicted - 1 under leave-one-out, of calls
// timed alone.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/kernel_features.h"
#include "sim/cost/overlap.h"

namespace longhaul {

// Leave-one-out residuals of the rows of one kind, split at `small_call_seconds`: below it jitter of launches rules.
struct ResidualBand {
  std::int64_t rows = 0;
  double low = 0;     // 5 % end, <= 0
  double high = 0;    // 95 % end, >= 0
  double median = 0;  // of the absolute relative error |predicted / measured - 1|
  double p90 = 0;
};

struct KernelCalibration {
  Terms constants{};
  double timed_alone_seconds = 0;  // the part of the per-call constant that a busy stream hides
  double small_call_seconds = 0;
  ResidualBand small;
  ResidualBand large;
  std::vector<SizeKey> measured;  // sorted; not empty
  SizeKey lowest{};               // per component over `measured`
  SizeKey highest{};
};

struct Calibration {
  std::string name;     // the measured device
  std::string date;     // day of measurement
  std::string machine;  // driver, libraries
  double peak_flops_per_second = 0;
  double memory_bytes_per_second = 0;  // datasheet
  double host_link_bytes_per_second = 0;
  std::int64_t multiprocessors = 0;
  double launch_seconds = 0;
  OverlapConstants overlap;
  // Of what stands beside adds to a kernel's time: measured / predicted - 1 of (factor - 1).
  ResidualBand overlap_residuals;
  std::array<KernelCalibration, kKernelKindCount> kernels;

  const KernelCalibration& kernel(KernelKind kind) const { return kernels[static_cast<std::size_t>(kind)]; }
  KernelCalibration& kernel(KernelKind kind) { return kernels[static_cast<std::size_t>(kind)]; }
};

// Every fault is returned at once.
Expected<Calibration> read_calibration(const std::string& file);
Expected<Calibration> parse_calibration(const std::string& text, const std::string& file);
// The text of the file; parse_calibration of it gives the same numbers.
std::string write_calibration(const Calibration& calibration, const std::vector<std::string>& data_files);
// Components of a kind's SizeKey, in order ("m", "n", "k").
const std::vector<std::string>& size_names(KernelKind kind);

}  // namespace longhaul
