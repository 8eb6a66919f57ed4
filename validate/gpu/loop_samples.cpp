#include "validate/gpu/loop_samples.h"

#include <algorithm>
#include <numeric>

#include "sim/core/invariant.h"

namespace longhaul {

std::vector<double> durations_between(const std::vector<CallSpan>& spans, double from_ms, double to_ms) {
  std::vector<double> durations;
  for (const CallSpan& span : spans) {
    if (span.start_ms >= from_ms && span.end_ms <= to_ms) durations.push_back(span.end_ms - span.start_ms);
  }
  return durations;
}

CallSpan common_time(const std::vector<CallSpan>& a, const std::vector<CallSpan>& b) {
  if (a.empty() || b.empty()) return {1, 0};
  return {std::max(a.front().start_ms, b.front().start_ms), std::min(a.back().end_ms, b.back().end_ms)};
}

SampleSummary summarize(std::vector<double> samples) {
  LH_ASSERT(!samples.empty(), "no samples to summarize");
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const double median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {n, median, samples.front(), samples.back(), sum / static_cast<double>(n)};
}

}  // namespace longhaul
