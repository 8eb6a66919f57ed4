// View data of memory over time: a step curve of one rank, thinned so that neither its peak nor its shape is lost.
//
// Units: Time and bytes. A point holds from its time to the next point's. Invariants: times rise, the first and last
// sample are kept, the largest and smallest value of every stretch that was thinned are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/timeline/traced.h"

namespace longhaul {

struct MemoryPoint {
  Time time;
  std::int64_t bytes = 0;
  bool operator==(const MemoryPoint&) const = default;
};

struct MemoryCurve {
  std::int32_t rank = -1;  // -1: the trace has no samples
  std::vector<MemoryPoint> points;
  MemoryPoint peak;  // the first at the largest value
};

// The traced rank with the largest peak (the lowest of equal ones). At most `max_points` points, at least 8.
MemoryCurve memory_curve(const Traced& traced, std::size_t max_points);

// Thins a step curve: splits its span into equal stretches and keeps of each the first, lowest, highest and last point.
std::vector<MemoryPoint> thin_curve(const std::vector<MemoryPoint>& points, std::size_t max_points);

}  // namespace longhaul
