#include "validate/gpu/calibrate/noise.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr double kBin = 0.005;

double median_of(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double entropy_in_bins(std::span<const double> samples, double width) {
  std::map<std::int64_t, std::size_t> bins;
  for (const double sample : samples) ++bins[std::llround(sample / width)];
  double bits = 0;
  for (const auto& [bin, count] : bins) {
    const double share = static_cast<double>(count) / static_cast<double>(samples.size());
    bits -= share * std::log2(share);
  }
  return bits;
}

}  // namespace

double relative_deviation(std::span<const double> samples) {
  LH_ASSERT(samples.size() >= 2, "a deviation of {} samples", samples.size());
  const auto n = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double square = 0;
  for (const double sample : samples) square += (sample - mean) * (sample - mean);
  return std::sqrt(square / (n - 1)) / mean;
}

double relative_mean_error(std::span<const double> samples) {
  return relative_deviation(samples) / std::sqrt(static_cast<double>(samples.size()));
}

double entropy_bits(std::span<const double> samples) {
  LH_ASSERT(!samples.empty(), "the entropy of no samples");
  return entropy_in_bins(samples, kBin * median_of(samples));
}

double entropy_slope(std::span<const double> samples) {
  LH_ASSERT(samples.size() >= 4, "a slope of {} samples", samples.size());
  const double width = kBin * median_of(samples);
  const std::size_t from = samples.size() / 2;
  const auto n = static_cast<double>(samples.size() - from + 1);
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (std::size_t i = from; i <= samples.size(); ++i) {
    const auto x = static_cast<double>(i);
    const double y = entropy_in_bins(samples.first(i), width);
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

bool quiet(std::span<const double> samples, const NoiseLimit& limit) {
  if (samples.size() < 2) return false;
  switch (limit.rule) {
    case NoiseRule::kMeanError:
      return relative_mean_error(samples) <= limit.limit;
    case NoiseRule::kEntropy:
      return samples.size() >= 4 && std::abs(entropy_slope(samples)) <= limit.limit;
    case NoiseRule::kFixed:
      return samples.size() >= limit.samples;
  }
  return false;
}

}  // namespace longhaul
