#include "validate/report/repeats.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <vector>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::size_t kExactPairs = 900;

double median_of_sorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Probabilities of the Mann-Whitney counts 0 .. limit - 1 of n and m values, all orders alike. Recursion over the last
// of the n + m values in order: P(n, m, u) = n / (n + m) P(n - 1, m, u - m) + m / (n + m) P(n, m - 1, u).
std::vector<double> count_probabilities(std::size_t n, std::size_t m, std::size_t limit) {
  std::vector<std::vector<double>> row(m + 1, std::vector<double>(limit, 0));  // of n so far, by m
  for (std::vector<double>& start : row) start[0] = 1;                         // no value of the first kind: count 0
  for (std::size_t i = 1; i <= n; ++i) {
    std::vector<std::vector<double>> next(m + 1, std::vector<double>(limit, 0));
    next[0][0] = 1;
    for (std::size_t j = 1; j <= m; ++j) {
      const double all = static_cast<double>(i + j);
      for (std::size_t u = 0; u < limit; ++u) {
        const double from_first = u >= j ? row[j][u - j] * static_cast<double>(i) / all : 0;
        next[j][u] = from_first + next[j - 1][u] * static_cast<double>(j) / all;
      }
    }
    row = std::move(next);
  }
  return row[m];
}

std::size_t exact_bound(std::size_t n, std::size_t m, double tail) {
  const std::vector<double> probability = count_probabilities(n, m, n * m / 2 + 1);
  double below = 0;
  std::size_t k = 0;
  while (k < probability.size() && below + probability[k] <= tail) below += probability[k++];
  return k;
}

}  // namespace

std::size_t mann_whitney_bound(std::size_t n, std::size_t m, double tail) {
  LH_ASSERT(n > 0 && m > 0 && tail > 0 && tail < 0.5, "Mann-Whitney counts of {} and {} values at {}", n, m, tail);
  if (n * m <= kExactPairs) return exact_bound(n, m, tail);
  const double pairs = static_cast<double>(n) * static_cast<double>(m);
  const double deviation = std::sqrt(pairs * static_cast<double>(n + m + 1) / 12);
  const double z = boost::math::quantile(boost::math::normal(), tail);
  return static_cast<std::size_t>(std::max(0.0, std::floor(pairs / 2 + z * deviation)));
}

MedianInterval median_interval(std::span<const double> values, double confidence) {
  LH_ASSERT(!values.empty() && confidence > 0 && confidence < 1, "the median of {} values at {}", values.size(),
            confidence);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  MedianInterval result;
  result.repeats = sorted.size();
  result.median = median_of_sorted(sorted);
  // The k-th smallest value lies above the median if fewer than k values lie below it: P(B < k) <= tail.
  const double tail = (1 - confidence) / 2;
  const boost::math::binomial halves(static_cast<double>(sorted.size()), 0.5);
  std::size_t k = 0;
  while (k < sorted.size() / 2 && boost::math::cdf(halves, static_cast<double>(k)) <= tail) ++k;
  result.bounded = k > 0;
  const std::size_t at = k > 0 ? k - 1 : 0;
  result.low = sorted[at];
  result.high = sorted[sorted.size() - 1 - at];
  return result;
}

RatioInterval ratio_interval(std::span<const double> now, std::span<const double> before, double confidence) {
  LH_ASSERT(!now.empty() && !before.empty(), "the ratio of {} and {} values", now.size(), before.size());
  std::vector<double> ratios;
  ratios.reserve(now.size() * before.size());
  for (const double a : now) {
    for (const double b : before) {
      LH_ASSERT(a > 0 && b > 0, "a ratio of {} and {}", a, b);
      ratios.push_back(a / b);
    }
  }
  const std::size_t bound = mann_whitney_bound(now.size(), before.size(), (1 - confidence) / 2);
  // Only four order statistics are needed: no full sort of n m ratios.
  const auto nth = [&](std::size_t k) {
    std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(k), ratios.end());
    return ratios[k];
  };
  const std::size_t at = bound > 0 ? bound - 1 : 0;
  const std::size_t half = ratios.size() / 2;
  const double centre = ratios.size() % 2 == 1 ? nth(half) : (nth(half - 1) + nth(half)) / 2;
  return {centre, nth(at), nth(ratios.size() - 1 - at), bound > 0};
}

}  // namespace longhaul
