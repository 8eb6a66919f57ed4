// How sure a step time is: what its parts may be off by, and what follows for the step and for the ratio of two steps.
//
// Errors come in classes. Within one class everything errs together: the kernels of one KernelKind share constants, so
// that one that is 5 % slow makes all of them 5 % slow; half-widths of a class add. Classes err independently: their
// half-widths add in quadrature. Classes: the kernel kinds; what overlap adds (contention); exposed communication.
// Waits for other ranks (bubble, imbalance, tail) are kernels of others: they err in proportion with the kernels.
//
// Two steps of one study share the classes: a calibration that is 5 % off is so in both. In their ratio only what they
// do not share in proportion is left, so that strategies can be told apart far inside the interval of either.
//
// Units: seconds of half-width, at 90 %, separately downwards and upwards (residuals are skewed). Ignored: the launch
// part, which is taken as it is; which rank ends last, that another error might change; errors of one class that differ
// between sizes (they make ratios less sure than said here).
#pragma once

#include <array>

#include "sim/core/sim_time.h"
#include "sim/cost/estimate.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

inline constexpr int kContentionErrors = kKernelKindCount;
inline constexpr int kCollectiveErrors = kKernelKindCount + 1;
inline constexpr int kErrorClassCount = kKernelKindCount + 2;

struct ErrorWidths {
  std::array<double, kErrorClassCount> below{}, above{};

  // Of two parts that follow each other: classes add.
  ErrorWidths& operator+=(const ErrorWidths& other);
  ErrorWidths& operator*=(double factor);
};

// Of the step as this rank saw it. Exposed communication errs by `of_collectives` of it either way, contention by what
// the calibration measured.
ErrorWidths error_widths(const RankTotals& rank, const KernelModel& kernels, double of_collectives);

struct Ends {
  Time low;
  Time high;
};
// `time` less and more what its classes make in quadrature; never below zero.
Ends interval(Time time, const ErrorWidths& widths);

struct Ratio {
  double value = 0;
  double low = 0;
  double high = 0;
};
// `over` / `under`, both > 0, with the ends at 90 %: an error that makes a class e of its half-width longer in both
// changes the logarithm of the ratio by e (over's width / over - under's width / under), to first order; classes in
// quadrature, the ends as value x (1 - h) and value x (1 + h'). Equal steps have the ratio 1 without an error.
// Attention of two libraries has errors of its own in either step.
enum class AttentionErrors : bool { kShared, kApart };
Ratio ratio_of(Time over, const ErrorWidths& over_widths, Time under, const ErrorWidths& under_widths,
               AttentionErrors attention = AttentionErrors::kShared);

}  // namespace longhaul
