#include "reports/memory_curve.h"

#include <algorithm>
#include <array>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

using Sample = RecordedTimeline::MemorySample;

// One rank's samples in order of time; of samples at one time the last holds.
std::vector<MemoryPoint> curve_of(const std::vector<Sample>& samples, std::int32_t rank) {
  std::vector<MemoryPoint> points;
  for (const Sample& sample : samples) {
    if (sample.rank != rank) continue;
    if (!points.empty() && points.back().time == sample.time) {
      points.back().bytes = sample.bytes;
    } else {
      points.push_back({sample.time, sample.bytes});
    }
  }
  return points;
}

}  // namespace

std::vector<MemoryPoint> thin_curve(const std::vector<MemoryPoint>& points, std::size_t max_points) {
  LH_ASSERT(max_points >= 8, "a curve of {} points", max_points);
  if (points.size() <= max_points) return points;
  const std::int64_t first = points.front().time.ps();
  const std::int64_t span = points.back().time.ps() - first;
  const auto stretches = static_cast<std::int64_t>(max_points / 4);
  const std::int64_t width = span / stretches + 1;  // so that the last point falls into the last stretch
  std::vector<MemoryPoint> thinned;
  for (std::size_t begin = 0; begin < points.size();) {
    const std::int64_t stretch = (points[begin].time.ps() - first) / width;
    std::size_t end = begin + 1;
    while (end < points.size() && (points[end].time.ps() - first) / width == stretch) ++end;
    std::size_t low = begin, high = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (points[i].bytes < points[low].bytes) low = i;
      if (points[i].bytes > points[high].bytes) high = i;
    }
    std::array<std::size_t, 4> kept = {begin, low, high, end - 1};
    std::sort(kept.begin(), kept.end());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) thinned.push_back(points[kept[i]]);
    }
    begin = end;
  }
  return thinned;
}

MemoryCurve memory_curve(const Traced& traced, std::size_t max_points) {
  MemoryCurve curve;
  std::int64_t largest = -1;
  for (const Sample& sample : traced.timeline->samples) {
    const bool better = sample.bytes > largest || (sample.bytes == largest && sample.rank < curve.rank);
    if (!better) continue;
    largest = sample.bytes;
    curve.rank = sample.rank;
  }
  if (curve.rank < 0) return curve;
  const std::vector<MemoryPoint> points = curve_of(traced.timeline->samples, curve.rank);
  curve.peak = *std::max_element(points.begin(), points.end(),
                                 [](const MemoryPoint& a, const MemoryPoint& b) { return a.bytes < b.bytes; });
  curve.points = thin_curve(points, max_points);
  return curve;
}

}  // namespace longhaul
