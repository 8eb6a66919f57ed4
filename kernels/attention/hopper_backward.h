// Launch of the Hopper backward kernel and of what goes before and after it; PieceAttention is what callers use.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention/attention_tile.h"
#include "kernels/attention/backward_version.h"

namespace longhaul {

inline constexpr int kHopperBackwardRows = 64;   // queries of a tile
inline constexpr int kHopperBackwardKeys = 128;  // keys of a tile
// fp32 numbers a (query tile, head): log-sum-exps in powers of two, then sums of dO O.
inline constexpr int kRowStatistics = 2 * kHopperBackwardRows;

// Tensor maps (tensor_map.h) with boxes of kHopperBackwardRows queries and kHopperBackwardKeys keys.
struct HopperBackwardMaps {
  CUtensorMap q, d_o, k, v;
};

struct HopperBackwardArgs {
  DeviceKeyTiles tiles;  // planned for the tile sizes above
  int q_heads = 0, kv_heads = 0;
  int last_heads =
      0;  // key heads whose key tiles are taken together, after those of one head at a time (1 .. kv_heads)
  float scale = 0, scale_log2 = 0;
  const __nv_bfloat16 *o = nullptr, *d_o = nullptr;
  const float* lse = nullptr;
  // Scratch: q_heads x query tiles x kRowStatistics, and q_heads x query tiles x kHopperBackwardRows x 128.
  float *statistics = nullptr, *d_q_sum = nullptr;
  __nv_bfloat16 *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  int* counters = nullptr;  // two, 0 between launches
};

// Enqueues all kernels of a backward pass. key tiles x kv_heads and query tiles x q_heads stay below 2^31 (the caller
// checks); one launch at a time uses scratch and counters.
void launch_hopper_backward(HopperBackwardVersion version, const HopperBackwardMaps& maps,
                            const HopperBackwardArgs& args, int multiprocessors, cudaStream_t stream);

}  // namespace longhaul
