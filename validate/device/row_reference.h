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

// The last part of it, of many rows: turns dQ, as attention's input has it, back to the projection's output.
void turn_back_rows(const ModelShape& model, const Batch& batch, const std::vector<std::int64_t>& rows,
                    std::vector<RowResult>& results);
// Where a row's document lies in reference order.
struct RowDocument {
  std::int64_t first_row = 0, rows = 0;
  std::int64_t tokens = 0;  // half of its rows in block diffusion
};
RowDocument document_of_row(const Batch& batch, std::int64_t row);

}  // namespace longhaul
