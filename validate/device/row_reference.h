// Attention of sampled query rows in double precision, from the very numbers that a device's step had.
//
// For steps too large to be computed on the CPU: q, k, v (after RoPE) and dO of the step are taken as given, so that
// what is compared is attention alone, however it was split over ranks. Of a row: O, its log-sum-exp, and dQ as the
// gradient of the QKV projection's output (RoPE turned back). Mask from its definition (validate/cpu), scale
// 1 / sqrt(head_dim). About 14 keys q_heads head_dim multiply-adds a row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/device/numerics.h"

namespace longhaul {

// Rows in reference order that no two draws share, sorted: every token row if there are fewer than `count`.
std::vector<std::int64_t> sample_rows(const Batch& batch, std::int64_t count, std::uint64_t seed);

// What a step says of one layer, where it lies in `outcome`.
struct LayerRows {
  RowView qkv, o, d_o, qkv_grad;
  RowTable<float> lse;
};
LayerRows layer_rows(const Schedule& schedule, const StepOutcome& outcome, std::int16_t layer);
LayerRows layer_rows(const Schedule& schedule, StepOutcome&& outcome, std::int16_t layer) = delete;

struct RowResult {
  std::vector<double> o, dq;  // q_width
  std::vector<double> lse;    // q_heads
};
// `row` in reference order; `rows.qkv` and `rows.d_o` must hold the row and the keys of its document.
RowResult reference_row(const ModelShape& model, const Batch& batch, const LayerRows& rows, std::int64_t row);

// The same of many rows, as matrix products over their documents, shared out over `threads`; `rows` sorted.
std::vector<RowResult> reference_rows(const ModelShape& model, const Batch& batch, const LayerRows& table,
                                      const std::vector<std::int64_t>& rows, int threads);

// ||x - ref|| / ||ref|| of "O", "LSE", "dQ" over the sampled rows of all layers (worst layer). Rows are shared out over
// `threads`; the result does not depend on them.
std::vector<QuantityNorm> sampled_errors(const Schedule& schedule, const StepOutcome& outcome,
                                         const std::vector<std::int64_t>& rows, int threads);
// No worse than `factor` times the undistributed run's error on the same rows; reference "fp64-rows".
std::vector<NumericsResult> judge_rows(const std::vector<QuantityNorm>& errors,
                                       const std::vector<QuantityNorm>& undistributed, double factor = 2.0);

}  // namespace longhaul
