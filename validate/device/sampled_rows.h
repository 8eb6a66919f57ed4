// Sampled query rows of a step against double precision: how far O, log-sum-exp and dQ are from attention computed of
// the very numbers that the step had (row_reference.h).
#pragma once

#include <cstdint>
#include <vector>

#include "validate/device/double_math.h"
#include "validate/device/numerics.h"

namespace longhaul {

// Rows in reference order that no two draws share, sorted: every token row if there are fewer than `count`.
std::vector<std::int64_t> sample_rows(const Batch& batch, std::int64_t count, std::uint64_t seed);

// ||x - ref|| / ||ref|| of "O", "LSE", "dQ" over the sampled rows of all layers (worst layer); rows that the step does
// not hold, or whose documents it holds in part, are missing.
std::vector<QuantityNorm> sampled_errors(const Schedule& schedule, const StepOutcome& outcome,
                                         const std::vector<std::int64_t>& rows, DoubleMath& math);
// No worse than `factor` times the undistributed run's error on the same rows; reference "fp64-rows".
std::vector<NumericsResult> judge_rows(const std::vector<QuantityNorm>& errors,
                                       const std::vector<QuantityNorm>& undistributed, double factor = 2.0);

}  // namespace longhaul
