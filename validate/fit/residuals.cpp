#include "validate/fit/residuals.h"

#include <algorithm>
#include <cmath>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"

namespace longhaul {

ResidualBand band_of(const std::vector<double>& measured, const std::vector<double>& predicted) {
  ResidualBand band;
  std::vector<double> residuals;
  std::vector<double> errors;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    residuals.push_back(measured[i] / predicted[i] - 1);
    errors.push_back(std::abs(predicted[i] / measured[i] - 1));
  }
  std::sort(residuals.begin(), residuals.end());
  const auto count = static_cast<std::int64_t>(residuals.size());
  const std::int64_t rank = std::max<std::int64_t>((count + 1) / 20, 1);  // floor of 5 % of n + 1
  band.rows = count;
  band.low = std::min(residuals[static_cast<std::size_t>(rank - 1)], 0.0);
  band.high = std::max(residuals[static_cast<std::size_t>(count - rank)], 0.0);
  band.median = quantile(errors, 0.5);
  band.p90 = quantile(errors, 0.9);
  return band;
}

}  // namespace longhaul
