// Medians and ratios of repeated measurements, with intervals that assume no distribution.
//
// Times of GPU kernels have outliers to one side, so nothing here takes means or standard deviations. The interval of a
// median lies between two order statistics (the sign test turned around). The
// interval of a ratio of two runs lies between two of the n m pairwise ratios (Mann-Whitney counts, Hodges and Lehmann
// 1963), its centre is their median. Assumed: repeats of one run are exchangeable; both runs have the same shape.
// Units: whatever the values have, all above 0 for ratios. Pure functions.
#pragma once

#include <cstddef>
#include <span>

namespace longhaul {

struct MedianInterval {
  double median = 0;
  double low = 0, high = 0;
  // False: too few repeats for the confidence asked for; low and high are then the least and the largest value.
  bool bounded = false;
  std::size_t repeats = 0;
};

// Two-sided. `values` holds at least one.
MedianInterval median_interval(std::span<const double> values, double confidence);

struct RatioInterval {
  double ratio = 1;  // now / before
  double low = 0, high = 0;
  bool bounded = false;  // as above
};

// Two-sided. Both hold at least one value.
RatioInterval ratio_interval(std::span<const double> now, std::span<const double> before, double confidence);

// The largest k for which P(U < k) <= tail, U the Mann-Whitney count of n and m values; 0: not even k = 1 does. Exact
// for n m <= 900, by the normal approximation beyond. The k-th smallest and k-th largest pairwise ratio then bound
// the shift with tail on each side.
std::size_t mann_whitney_bound(std::size_t n, std::size_t m, double tail);

}  // namespace longhaul
