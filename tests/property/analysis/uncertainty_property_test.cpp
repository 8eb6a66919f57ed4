// Laws of intervals: one class adds, classes add in quadrature, ratios share what both sides have.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "sim/analysis/uncertainty.h"

namespace longhaul {
namespace {

double fraction() { return *rc::gen::inRange(0, 1001) / 1000.0; }

// Half-widths up to half of a step of one to a thousand milliseconds, spread over all classes.
struct Step {
  Time time;
  ErrorWidths widths;
};

Step random_step() {
  Step step;
  step.time = Time::from_ps(std::int64_t{1'000'000'000} * *rc::gen::inRange(1, 1001));
  for (std::size_t i = 0; i < kErrorClassCount; ++i) {
    step.widths.below[i] = 0.5 * fraction() / kErrorClassCount * step.time.seconds();
    step.widths.above[i] = 0.5 * fraction() / kErrorClassCount * step.time.seconds();
  }
  return step;
}

bool close(double a, double b, double room) { return std::abs(a - b) <= room; }
constexpr double kPicosecond = 2e-12;  // ends are rounded once

// Two ops of one class: the interval of the sum is the sum of the half-widths.
RC_GTEST_PROP(Uncertainty, OneClassAdds, ()) {
  const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, kErrorClassCount));
  ErrorWidths a, b;
  a.above[at] = fraction();
  b.above[at] = fraction();
  ErrorWidths both = a;
  both += b;
  const Time step = Time::from_seconds(10);
  RC_ASSERT(close(interval(step, both).high.seconds() - 10, a.above[at] + b.above[at], kPicosecond));
}

// Two ops of different classes: the root of the sum of squares.
RC_GTEST_PROP(Uncertainty, ClassesAddInQuadrature, ()) {
  const auto first = static_cast<std::size_t>(*rc::gen::inRange(0, kErrorClassCount - 1));
  const auto second = static_cast<std::size_t>(*rc::gen::inRange(static_cast<int>(first) + 1, kErrorClassCount));
  ErrorWidths a, b;
  a.below[first] = fraction();
  b.below[second] = fraction();
  ErrorWidths both = a;
  both += b;
  const Time step = Time::from_seconds(10);
  RC_ASSERT(close(10 - interval(step, both).low.seconds(), std::hypot(a.below[first], b.below[second]), kPicosecond));
}

RC_GTEST_PROP(Uncertainty, RatiosHoldTheirValue, ()) {
  const Step a = random_step();
  const Step b = random_step();
  const Ratio ratio = ratio_of(a.time, a.widths, b.time, b.widths);
  RC_ASSERT(ratio.low >= 0 && ratio.low <= ratio.value && ratio.value <= ratio.high);
}

// A step and the same made longer by any factor differ by that factor, surely: every class is shared in proportion.
RC_GTEST_PROP(Uncertainty, ProportionalStepsHaveASureRatio, ()) {
  const Step a = random_step();
  const int times = *rc::gen::inRange(1, 5);
  Step b = a;
  b.widths *= times;
  b.time = Time::from_ps(a.time.ps() * times);
  const Ratio ratio = ratio_of(b.time, b.widths, a.time, a.widths);
  RC_ASSERT(close(ratio.low, times, 1e-9 * times));
  RC_ASSERT(close(ratio.high, times, 1e-9 * times));
}

// A ratio is never less sure than both steps would make it if their errors had nothing in common and all went the wrong
// way.
RC_GTEST_PROP(Uncertainty, SharingOnlyHelps, ()) {
  const Step a = random_step();
  const Step b = random_step();
  const Ratio ratio = ratio_of(a.time, a.widths, b.time, b.widths);
  double most = 0;
  for (std::size_t i = 0; i < kErrorClassCount; ++i) {
    most += std::max(a.widths.above[i], a.widths.below[i]) / a.time.seconds() +
            std::max(b.widths.above[i], b.widths.below[i]) / b.time.seconds();
  }
  RC_ASSERT(ratio.high <= ratio.value * (1 + most) * (1 + 1e-12));
}

}  // namespace
}  // namespace longhaul
