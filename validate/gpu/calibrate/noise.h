// When a series of samples is good enough to stop. Pure functions over the samples so far.
//
// * kMeanError: the standard error of the mean, over the mean, is at most `limit`. What a fit needs: it falls with the
//   number of samples, so that a noisy call takes more of them.
// * kEntropy: the entropy of the distribution of the samples no longer rises: over the second half of the samples the
//   line through the cumulative entropy has a slope below `limit` bits a sample. For calls whose times fall into
//   several modes (clocks), where the deviation never becomes small. After nvbench's entropy criterion.
// * kFixed: `samples` were taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

enum class NoiseRule : std::uint8_t { kMeanError, kEntropy, kFixed };

struct NoiseLimit {
  NoiseRule rule = NoiseRule::kMeanError;
  double limit = 0.003;      // kMeanError: relative; kEntropy: bits a sample
  std::size_t samples = 10;  // kFixed
};

// Standard deviation over mean of at least two samples (LH_ASSERT), by n - 1; and that over sqrt(n).
double relative_deviation(std::span<const double> samples);
double relative_mean_error(std::span<const double> samples);

// Entropy, in bits, of the samples put into bins of 0.5 % of their median (nvbench has bins of its timer's resolution,
// which a GPU's events do not state).
double entropy_bits(std::span<const double> samples);
// Slope of the least-squares line through entropy_bits of the first i samples, i over the second half of the samples.
double entropy_slope(std::span<const double> samples);

// Whether to stop; never with fewer than two samples.
bool quiet(std::span<const double> samples, const NoiseLimit& limit);

}  // namespace longhaul
