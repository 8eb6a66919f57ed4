#include "validate/gpu/calibrate/clock_probe.h"

#include <algorithm>
#include <vector>

#include "sim/core/invariant.h"

namespace longhaul {

double clock_between(std::span<const ClockReading> before, std::span<const ClockReading> after, std::uint32_t epoch) {
  LH_ASSERT(before.size() == after.size(), "{} and {} multiprocessors", before.size(), after.size());
  std::vector<double> mhz;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].epoch != epoch || after[i].epoch != epoch) continue;
    if (after[i].nanoseconds < before[i].nanoseconds + kShortestClockSpanNs) continue;
    if (after[i].cycles <= before[i].cycles) continue;
    mhz.push_back(1e3 * static_cast<double>(after[i].cycles - before[i].cycles) /
                  static_cast<double>(after[i].nanoseconds - before[i].nanoseconds));
  }
  if (mhz.empty()) return 0;
  const auto middle = mhz.begin() + static_cast<std::ptrdiff_t>(mhz.size() / 2);
  std::nth_element(mhz.begin(), middle, mhz.end());
  return *middle;
}

}  // namespace longhaul
