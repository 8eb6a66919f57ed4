// Non-negative least squares of relative errors, for models that are linear in few constants.
//
// Minimises sum_i w_i ((known_i + sum_j x_j terms_ij) / measured_i - 1)^2 over x >= 0. With at most kMaxTerms columns
// the active set is found by trying every subset, so the result is the optimum, not a stopping point. `kAbsolute`
// repeats it with w_i = 1 / max(|error_i|, 2 %): the sum of absolute errors, for rows in which a few outliers carry
// host jitter.
#pragma once

#include <vector>

#include "sim/cost/kernel_features.h"

namespace longhaul {

enum class Loss { kSquared, kAbsolute };

struct Observation {
  Terms terms{};
  double measured = 0;  // seconds, > 0
  double known = 0;     // seconds of it that are known beforehand and not fitted
};

// The first `count` terms are used, or those in `columns`; the others come out as zero. At least one observation.
Terms fit_constants(const std::vector<Observation>& observations, int count, Loss loss);
Terms fit_constants(const std::vector<Observation>& observations, const std::vector<int>& columns, Loss loss);
double predict(const Terms& constants, const Terms& terms);
// predicted by the fit to all other observations, one entry an observation
std::vector<double> leave_one_out(const std::vector<Observation>& observations, int count, Loss loss);

}  // namespace longhaul
