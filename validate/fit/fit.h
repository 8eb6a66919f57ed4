// Fits the kernel model to the H200 tables: constants, leave-one-out residuals, overlap factors.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/calibration.h"
#include "validate/fit/h200_tables.h"
#include "validate/fit/overlap.h"

namespace longhaul {

struct Fit {
  Calibration calibration;
  std::vector<MeasuredCall> rows;
  std::vector<double> fitted;    // seconds, by the constants in `calibration`; one a row
  std::vector<double> left_out;  // seconds, by a fit without that row
  OverlapFit overlap;
  std::vector<std::string> data_files;
};

// `directory` holds the tables of one GPU (validate/data/h200), `directory`x2 beside it those of two.
Expected<Fit> fit_h200(const std::string& directory);
// Median, 90th percentile and largest leave-one-out error of each group, for calls of at least 0.05 ms and for all;
// errors of overlap by constant.
std::string report(const Fit& fit);

}  // namespace longhaul
