// Order statistics of a few numbers. `values` is never empty.
#pragma once

#include <vector>

namespace longhaul {

// The middle value, of an even number the mean of both.
double median(std::vector<double> values);

// The smallest value that at least the part `part` (above 0, at most 1) of all values does not exceed.
double nearest_rank(std::vector<double> values, double part);

// The q quantile (0 to 1), linear between order statistics.
double quantile(std::vector<double> values, double q);

}  // namespace longhaul
