// Fits the kernel model to the H200 tables: constants, held-out residuals, overlap factors.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/calibration.h"
#include "validate/fit/kernels.h"
#include "validate/fit/overlap.h"

namespace longhaul {

struct Fit {
  KernelFit kernels;
  OverlapFit overlap;
  std::vector<std::string> data_files;

  const Calibration& calibration() const { return kernels.calibration; }
};

// The datasheet of the H200 SXM, as topologies/devices/h200.json, with the day and the machine of the tables.
MeasuredDevice h200_device();
// `directory` holds the tables of one GPU (validate/data/h200), `directory`x2 beside it those of two.
Expected<Fit> fit_h200(const std::string& directory);
// Median, 90th percentile and largest held-out error of each class, for calls of at least 0.05 ms and for all; errors
// of overlap by constant.
std::string report(const Fit& fit);

}  // namespace longhaul
