// What a fit leaves unexplained: order statistics, and the band that holds 90 % of residuals.
#pragma once

#include <vector>

#include "sim/cost/calibration.h"

namespace longhaul {

// Of a band of few rows: widened by this per row, 1.5 times for 12 rows, twice for 6; and its lowest end.
inline constexpr double kFewRowsWidening = 6;
inline constexpr double kLowestResidual = -0.9;

// Ends that bound 90 % of measured / predicted - 1, and quantiles of |predicted / measured - 1|. Of n values the r-th
// smallest bounds r / (n + 1) of further ones, so few values give their extremes. Not empty, equally many of both.
ResidualBand band_of(const std::vector<double>& measured, const std::vector<double>& predicted);

}  // namespace longhaul
