// Attention over pieces on the CPU in double precision: what every attention path on the GPU is compared with.
//
// The mask is asked pair by pair (Piece::allows): nothing is shared with the planner of tiles. Scale 1 /
// sqrt(head_dim), natural-log LSE. Layouts as in piece_attention.h. Meant for thousands of pairs, not millions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/common/bf16.h"
#include "sim/schedule/piece.h"

namespace longhaul {

struct ReferenceShape {
  std::int64_t q_rows = 0, k_rows = 0;
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
};

struct AttentionReference {
  std::vector<double> o;    // q_rows x q_heads x head_dim; rows that see no key: 0
  std::vector<double> lse;  // q_rows x q_heads; rows that see no key: minus infinity
};

struct AttentionGradients {
  std::vector<double> q, k, v;
};

AttentionReference attention_reference(const ReferenceShape& shape, std::span<const Piece> pieces,
                                       std::span<const Bf16> q, std::span<const Bf16> k, std::span<const Bf16> v);

// Gradients for the output gradient d_o; O and LSE are computed again, unrounded (FlashAttention-2, section 2.2:
// dV = P^T dO, dS = P (dO V^T - rowsum(dO O)), dQ = dS K scale, dK = dS^T Q scale).
AttentionGradients attention_reference_backward(const ReferenceShape& shape, std::span<const Piece> pieces,
                                                std::span<const Bf16> q, std::span<const Bf16> k,
                                                std::span<const Bf16> v, std::span<const Bf16> d_o);

// o, lse (rows x heads) of the union of two disjoint sets of keys, from each set's (o, lse), for rows of `head_dim`:
// lse = log(exp a + exp b), o = the mean weighted by exp(a - lse), exp(b - lse). Both minus infinity: 0, minus
// infinity.
void merge_reference(std::vector<double>& o, std::vector<double>& lse, std::span<const double> part_o,
                     std::span<const double> part_lse, std::int64_t head_dim);

}  // namespace longhaul
