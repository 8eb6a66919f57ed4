#include "sim/analysis/uncertainty.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

double quadrature(const std::array<double, kErrorClassCount>& widths) {
  double squares = 0;
  for (const double width : widths) squares += width * width;
  return std::sqrt(squares);
}

bool is_attention(std::size_t error_class) {
  constexpr KernelKind kKinds[] = {KernelKind::kAttentionForwardDense, KernelKind::kAttentionBackwardDense,
                                   KernelKind::kAttentionForwardRagged, KernelKind::kAttentionBackwardRagged};
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](KernelKind kind) { return static_cast<std::size_t>(kind) == error_class; });
}

}  // namespace

ErrorWidths& ErrorWidths::operator+=(const ErrorWidths& other) {
  for (std::size_t i = 0; i < below.size(); ++i) {
    below[i] += other.below[i];
    above[i] += other.above[i];
  }
  return *this;
}

ErrorWidths& ErrorWidths::operator*=(double factor) {
  for (std::size_t i = 0; i < below.size(); ++i) {
    below[i] *= factor;
    above[i] *= factor;
  }
  return *this;
}

ErrorWidths error_widths(const RankTotals& rank, const KernelModel& kernels, double of_collectives) {
  ErrorWidths widths;
  Time busy;
  for (std::size_t kind = 0; kind < kKernelKindCount; ++kind) {
    busy += rank.kernel_kind[kind];
    widths.below[kind] = rank.kernel_below[kind].seconds();
    widths.above[kind] = rank.kernel_above[kind].seconds();
  }
  const Time waits = rank.bubble + rank.imbalance + rank.tail;
  if (busy > Time::zero()) widths *= 1 + waits.seconds() / busy.seconds();
  widths.below[kContentionErrors] = rank.contention.seconds() * std::abs(kernels.overlap_residual_low());
  widths.above[kContentionErrors] = rank.contention.seconds() * kernels.overlap_residual_high();
  widths.below[kCollectiveErrors] = widths.above[kCollectiveErrors] =
      rank.exposed_communication.seconds() * of_collectives;
  return widths;
}

Ends interval(Time time, const ErrorWidths& widths) {
  const Time below = Time::from_seconds(quadrature(widths.below));
  return {below < time ? time - below : Time::zero(), time + Time::from_seconds(quadrature(widths.above))};
}

Ratio ratio_of(Time over, const ErrorWidths& over_widths, Time under, const ErrorWidths& under_widths,
               AttentionErrors attention) {
  LH_ASSERT(over > Time::zero() && under > Time::zero(), "the ratio of {} ps to {} ps", over.ps(), under.ps());
  const double a = over.seconds();
  const double b = under.seconds();
  std::array<double, kErrorClassCount> up{}, down{};
  for (std::size_t i = 0; i < up.size(); ++i) {
    if (attention == AttentionErrors::kApart && is_attention(i)) {
      up[i] = std::hypot(over_widths.above[i] / a, under_widths.below[i] / b);
      down[i] = std::hypot(over_widths.below[i] / a, under_widths.above[i] / b);
      continue;
    }
    const double slower = over_widths.above[i] / a - under_widths.above[i] / b;  // the class is slower than predicted
    const double faster = under_widths.below[i] / b - over_widths.below[i] / a;
    up[i] = std::max({slower, faster, 0.0});
    down[i] = std::max({-slower, -faster, 0.0});
  }
  const double value = a / b;
  return {value, value * std::max(0.0, 1 - quadrature(down)), value * (1 + quadrature(up))};
}

}  // namespace longhaul
