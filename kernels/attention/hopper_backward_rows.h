// What goes before and after the Hopper backward kernel, row by row.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/hopper_backward.h"

namespace longhaul {

// The sum of dQ lies as the accumulators do: [head][query tile][half][8][128 threads][4].
inline constexpr int kHopperHalfSum = kHopperBackwardRows * 64;  // fp32 numbers of half the columns of a tile
inline constexpr int kHopperTileSum = 2 * kHopperHalfSum;

// Packs, for every (query tile, head), the log-sum-exps and the sums of dO O; clears the sum of dQ.
void launch_row_statistics(const HopperBackwardArgs& args, cudaStream_t stream);
// Scales the sum of dQ and rounds it to bf16.
void launch_round_query_gradient(const HopperBackwardArgs& args, cudaStream_t stream);

}  // namespace longhaul
