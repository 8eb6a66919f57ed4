// Launch of the Hopper forward kernel; PieceAttention (piece_attention.h) is what callers use.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention/attention_tile.h"
#include "kernels/attention/forward_args.h"
#include "kernels/attention/forward_version.h"

namespace longhaul {

inline constexpr int kHopperHeadDim = 128;
inline constexpr int kHopperTileRows = 128;  // queries of a tile
inline constexpr int kHopperTileKeys = 128;

// Tensor maps (tensor_map.h) with boxes of kHopperTileRows queries, kHopperTileKeys keys and values.
struct HopperMaps {
  CUtensorMap q, k, v;
};

struct HopperForwardArgs {
  DeviceTiles tiles;  // planned for the tile sizes above
  ForwardOutput out;
  int heads_a_kv_head = 0;
  int section_heads = 0;    // query heads whose keys and values the L2 holds together; divides q_heads
  int* counters = nullptr;  // two, 0 between launches
};

// Enqueues. tile_count q_heads must stay below 2^31 (the caller checks); one launch at a time uses the counters.
void launch_hopper_forward(HopperForwardVersion version, const HopperMaps& maps, const HopperForwardArgs& args,
                           int multiprocessors, cudaStream_t stream);

}  // namespace longhaul
