#include "validate/gpu/calibrate/call_order.h"

#include <array>
#include <cmath>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Roots of g^(D+1) = g + 1 for D = 1 .. 4.
constexpr std::array<double, 4> kRatios = {1.6180339887498949, 1.3247179572447461, 1.2207440846057595,
                                           1.1673039782614187};

}  // namespace

std::vector<double> even_point(std::size_t index, int dimensions) {
  LH_ASSERT(dimensions >= 1 && dimensions <= static_cast<int>(kRatios.size()), "{} dimensions", dimensions);
  const double ratio = kRatios.at(static_cast<std::size_t>(dimensions - 1));
  std::vector<double> point;
  double step = 1;
  for (int d = 0; d < dimensions; ++d) {
    step /= ratio;
    const double value = 0.5 + static_cast<double>(index + 1) * step;
    point.push_back(value - std::floor(value));
  }
  return point;
}

std::vector<std::size_t> even_merge(const std::vector<std::size_t>& lengths) {
  std::size_t total = 0;
  for (const std::size_t length : lengths) total += length;
  std::vector<std::size_t> taken(lengths.size(), 0), order;
  while (order.size() < total) {
    std::size_t best = lengths.size();
    double best_place = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (taken[i] == lengths[i]) continue;
      // The middle of the item's share of its list.
      const double place = (static_cast<double>(taken[i]) + 0.5) / static_cast<double>(lengths[i]);
      if (best == lengths.size() || place < best_place) {
        best = i;
        best_place = place;
      }
    }
    order.push_back(best);
    ++taken[best];
  }
  return order;
}

}  // namespace longhaul
