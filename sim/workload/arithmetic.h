// FLOPs and activation bytes that follow from the model's shape alone. Nothing here knows a strategy or a device.
//
// One multiply-add counts two FLOPs. Attention counts unmasked pairs only; what a kernel computes beyond that (tiles,
// recomputed scores) belongs to sim/cost. Element-wise work is not counted.
#pragma once

#include <cstdint>

#include "sim/core/units.h"
#include "sim/workload/batch.h"
#include "sim/workload/model.h"

namespace longhaul {

// Forward FLOPs of all matrix products of one layer on `rows` rows: 2 x matmul parameters x rows (basp.md 2.4).
// Backward costs as much for the inputs and as much for the weights.
Flops layer_matmul_flops(const ModelShape& model, std::int64_t rows);
// Forward FLOPs of the vocabulary head on `rows` rows: 2 x vocab x hidden x rows (basp.md 2.4).
Flops head_flops(const ModelShape& model, std::int64_t rows);
// Forward FLOPs of the matrix products of the whole model for one token: 2 x matmul_parameters.
Flops matmul_flops_per_token(const ModelShape& model);

// FLOPs of attention of one layer over `pairs` unmasked (query, key) pairs: 4 x Hq x d x pairs forward, twice that
// useful in backward (csbp.md 1).
Flops attention_forward_flops(const ModelShape& model, std::int64_t pairs);
Flops attention_backward_flops(const ModelShape& model, std::int64_t pairs);

// The FLOPs of one training step that MFU counts, without recompute and replicated rows:
// 6 x matmul parameters x tokens + 12 x layers x Hq x d x pairs, with `pairs` per layer and head.
Flops model_flops(const ModelShape& model, std::int64_t tokens, std::int64_t pairs);
Flops model_flops(const ModelShape& model, const Batch& batch);

// Bytes that one layer keeps for backward per row in a 2-byte type without recompute (dpp.md 8):
// 12 D + 4 D_kv + 4 a + 6 D_ff, and 8 D_ff when silu(gate) is kept besides the product. D = hidden, a = query heads
// (fp32 LSE). The closed form takes the query width equal to D; here the two are told apart: 8 D + 4 Hq d.
std::int64_t activation_bytes_per_row(const ModelShape& model, bool fused_swiglu);
// Bytes that a fully recomputed layer keeps per row: its input, 2 D (dpp.md 8).
std::int64_t checkpoint_bytes_per_row(const ModelShape& model);

}  // namespace longhaul
