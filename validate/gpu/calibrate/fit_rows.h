// From the rows of `longhaul calibrate` to its calibration: what is left out, what is known of the device, the errors.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/device.h"
#include "sim/core/error.h"
#include "validate/fit/kernels.h"

namespace longhaul {

// Held-out errors of the rows of one class that count: 0.05 ms and more, spread of their samples below 10 %.
struct ClassErrors {
  std::string kernel_class;  // as in the calibration
  std::size_t rows = 0, counted = 0;
  double median = 0, p90 = 0;  // of |held out / measured - 1|; 0 where nothing counts
  double covered = 0;          // share of the counted rows that lie in their 90 % interval
};

// The rows of `text` (FILE.rows.csv, named `file`) without those whose clock stayed low, fitted; classes without rows
// keep the constants of `base`. The day and the machine come from the head of the file. Errors: as of
// parse_kernel_rows and fit_kernels; no rows at all; no "date:" line.
Expected<KernelFit> fit_calibration_rows(const std::string& text, const std::string& file, const DeviceSpec& device,
                                         const Calibration& base);

// In the order of the classes' names.
std::vector<ClassErrors> class_errors(const KernelFit& fit);

// What a fit starts from: the shipped calibration of the device or, without one, of the nearest measured device.
Expected<Calibration> base_calibration(const DeviceSpec& device, const std::string& data_directory);

}  // namespace longhaul
