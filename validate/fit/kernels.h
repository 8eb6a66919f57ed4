// Rows -> calibration: fits the constants of the kernel model (sim/cost) to measured calls of one device.
//
// `longhaul-fit` calls it with the tables that ship, `longhaul calibrate` with what it has just measured. Classes
// without rows keep the constants of `base` (the shipped calibration of the nearest device, scaled by the datasheet)
// and say so in their basis. Nothing here looks at a clock or a device.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/calibration.h"
#include "validate/fit/kernel_rows.h"

namespace longhaul {

// What is known of the device without measuring. All > 0.
struct MeasuredDevice {
  std::string name;     // as topologies/devices/NAME.json
  std::string date;     // day of measurement, YYYY-MM-DD
  std::string machine;  // driver, libraries: for people
  double peak_flops_per_second = 0;
  double memory_bytes_per_second = 0;
  double host_link_bytes_per_second = 0;
  std::int64_t multiprocessors = 0;
};

// One row as the fit saw it and as a fit without its group predicts it.
struct FittedRow {
  KernelRow row;
  std::string kernel_class;  // "gemm", "attention/cudnn/forward/dense", ...; empty: not fitted (too few rows)
  double fitted = 0;         // seconds
  double held_out = 0;       // seconds, by a fit without the rows of its group
  double held_out_low = 0, held_out_high = 0;  // 90 %, of a band without the rows of its fold
};

struct KernelFit {
  Calibration calibration;
  std::vector<FittedRow> rows;
};

// `base`: constants for classes that have too few rows (under 6), scaled by the datasheet unless it is of the same
// device, the overlap section and the launch time where no row has it; one without classes for nothing.
// Errors: rows that are no one call of their library, classes that every calibration has and neither rows nor `base`
// give; all at once.
Expected<KernelFit> fit_kernels(const MeasuredDevice& device, const std::vector<KernelRow>& rows,
                                const Calibration& base);

}  // namespace longhaul
