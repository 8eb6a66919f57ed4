// A calibration: the constants of the kernel model for one measured device, as `longhaul-fit` and `longhaul calibrate`
// write them.
//
// File: topologies/devices/calibration/NAME.json, `"schema": "calibration/3"`, JSON Schema in
// topologies/calibration.schema.json. It names the tables and the day on which they were measured. Constants are in
// seconds per term (sim/cost/kernel_features.h). Residuals are measured / predicted - 1 of rows that were left out by
// group, of calls timed alone.
//
// Classes: the six that every calibration has (gemm, elementwise, the three copies; attention by cuDNN, dense, both
// passes) and any others of sim/cost/kernel_features.h. Invariant of a parsed or finished calibration: those are there.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/kernel_features.h"
#include "sim/cost/overlap.h"

namespace longhaul {

// Held-out residuals of the rows of one class, split at `small_call_seconds`: below it jitter of launches rules.
struct ResidualBand {
  std::int64_t rows = 0;
  double low = 0;     // 5 % end, <= 0
  double high = 0;    // 95 % end, >= 0
  double median = 0;  // of the absolute relative error |predicted / measured - 1|
  double p90 = 0;
};

// What a class's constants stand on.
enum class ClassSource {
  kMeasured,   // calls timed on this device by tools of this repository
  kPublished,  // tables that others published: constants of the nearest measured device, scaled to them
  kDatasheet,  // constants of the nearest measured device, scaled by the datasheet
};
const char* to_string(ClassSource source);  // "measured", "published", "datasheet"

struct KernelCalibration {
  ClassSource source = ClassSource::kMeasured;
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
  std::string name;     // the device
  std::string date;     // day of measurement
  std::string machine;  // driver, libraries
  double peak_flops_per_second = 0;
  double memory_bytes_per_second = 0;  // datasheet
  double host_link_bytes_per_second = 0;
  std::int64_t multiprocessors = 0;
  double launch_seconds = 0;
  OverlapConstants overlap;
  ClassSource overlap_source = ClassSource::kMeasured;
  // Of what stands beside adds to a kernel's time: measured / predicted - 1 of (factor - 1).
  ResidualBand overlap_residuals;
  std::map<std::string, KernelCalibration, std::less<>> classes;

  // Nothing if there is no such class.
  const KernelCalibration* find(std::string_view kernel_class) const;
  // The class that stands for the kind (kernel_kind_name), for ragged attention the dense one if there is no other.
  const KernelCalibration& kernel(KernelKind kind) const;
};

// Every fault is returned at once.
Expected<Calibration> read_calibration(const std::string& file);
Expected<Calibration> parse_calibration(const std::string& text, const std::string& file);
// The text of the file; parse_calibration of it gives the same numbers.
std::string write_calibration(const Calibration& calibration, const std::vector<std::string>& data_files);
// Components of a class's SizeKey, in order ("m", "n", "k").
const std::vector<std::string>& size_names(std::string_view kernel_class);
// Sets `lowest` and `highest` from `measured`, and sorts it.
void set_range(KernelCalibration& kernel);
// Classes that every calibration has.
const std::vector<std::string>& required_classes();

}  // namespace longhaul
