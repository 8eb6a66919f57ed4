// The calibration of a device that nobody timed for us, from a few calls that others published (H100, A100).
//
// Model: each class keeps the form and the ratios of its constants from the nearest measured device, scaled by the data
// sheet; its work (all terms but the time of a call) is multiplied by one factor e^x, which is all that a few rows can
// tell. x ~ N(0, p^2) beforehand: p is what the data sheet may be wrong by. A table t with n rows says y_t, the mean of
// log((measured - call) / (prior - call)), with variance e_t^2 + r_t^2 / n: e_t is shared by its rows (clocks, power
// cap, library version, harness), r_t a row's own. So x = (sum y_t / v_t) / (1 / p^2 + sum 1 / v_t), and its variance
// is one over that denominator. Published rates are of calls back to back: launch latency is not in them.
//
// Interval of a fitted class: the rows' spread about the mean of their table (1 + 6 / n times as far, as for all small
// classes) or the measured device's own band, whichever is wider, and 1.645 standard deviations of x, in quadrature; at
// least the ends of the rows' own residuals, where table and data sheet disagree by more. Classes of the same library
// and pass whose rows are missing (ragged attention) take the factor of the dense class but stay "datasheet"; all other
// classes are scaled by the data sheet alone.
//
// Files: DEVICE.csv of rows (validate/fit/kernel_rows.h, `name` is TABLE/ROW) and published-tables.csv: columns
// table,device,use (fitted or aside),table_error,row_error. Units: seconds; errors are of the natural logarithm.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/cluster/device.h"
#include "sim/core/error.h"
#include "sim/cost/calibration.h"
#include "validate/fit/kernels.h"

namespace longhaul {

struct PublishedSource {
  bool fitted = true;      // aside: predicted, never fitted
  double table_error = 0;  // > 0
  double row_error = 0;    // >= 0
};

struct PublishedRows {
  std::vector<KernelRow> rows;
  std::map<std::string, PublishedSource> tables;  // by name, those of the device
};

// e^x and the standard deviation of x.
struct WorkFactor {
  double factor = 1;
  double deviation = 0;
  std::size_t rows = 0;
};

struct PublishedFit {
  Calibration calibration;
  std::map<std::string, WorkFactor> factors;  // of the classes that have rows
  // `held_out` by a fit without the rows of its table: with one table of a class, the data sheet's prediction.
  std::vector<FittedRow> rows;
  // The same rows, `held_out` by the fit to all rows: what the fit leaves of their errors.
  std::vector<FittedRow> shipped;
  std::vector<FittedRow> aside;  // `held_out` by the fit to all rows, which saw no table of them
};

// Devices that have published rows, by name: "a100-80gb", "h100".
const std::vector<std::string>& published_devices();
// The day on which the rows were collected.
inline constexpr const char* kPublishedDate = "2026-11-29";

// From `directory` (validate/data/kernels). Errors: every fault of both files; a row whose table is not listed.
Expected<PublishedRows> read_published_rows(const std::string& device, const std::string& directory);

// Standard deviation beforehand of a class's factor: the data sheet's prediction between devices of one generation, and
// of two. Judgement.
double prior_deviation(bool same_generation);
// From log ratios by table.
WorkFactor work_factor(const std::map<std::string, std::vector<double>>& ratios,
                       const std::map<std::string, PublishedSource>& tables, double prior);

// `base`: the calibration of `base_device`, all of whose classes are scaled. Errors: rows of no
// class that `base` has.
Expected<PublishedFit> fit_published(const DeviceSpec& device, const PublishedRows& rows, const DeviceSpec& base_device,
                                     const Calibration& base);
// The shipped ones: rows, devices and the H200's fit `base` from `data_directory`.
Expected<PublishedFit> fit_published(const std::string& device, const std::string& data_directory,
                                     const Calibration& base);
// Files that its calibration names.
std::vector<std::string> published_files(const std::string& device);
std::string report(const PublishedFit& fit);

}  // namespace longhaul
