#include "sim/core/order_statistics.h"

#include <algorithm>
#include <cmath>

#include "sim/core/invariant.h"

namespace longhaul {

double median(std::vector<double> values) {
  LH_ASSERT(!values.empty(), "the median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double nearest_rank(std::vector<double> values, double part) {
  LH_ASSERT(!values.empty() && part > 0 && part <= 1, "nearest rank {} of {} values", part, values.size());
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size())));
  return values[rank - 1];
}

double quantile(std::vector<double> values, double q) {
  LH_ASSERT(!values.empty() && q >= 0 && q <= 1, "quantile {} of {} values", q, values.size());
  std::sort(values.begin(), values.end());
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace longhaul
