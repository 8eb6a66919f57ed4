// Launch of the forward kernel for sm_80 and up; PieceAttention (piece_attention.h) is what callers use.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "kernels/attention/attention_tile.h"
#include "kernels/attention/forward_args.h"

namespace longhaul {

inline constexpr int kPortableTileRows = 64;  // queries of a tile
inline constexpr int kPortableTileKeys = 64;

struct PortableForwardArgs {
  DeviceTiles tiles;  // planned for the tile sizes above
  ForwardOutput out;
  int kv_heads = 0;
  int q_rows = 0, k_rows = 0;
  const __nv_bfloat16 *q = nullptr, *k = nullptr, *v = nullptr;  // rows x heads x head_dim, 16-byte aligned
};

// Enqueues. head_dim is 64, 128 or 256; tile_count q_heads below 2^31 (the caller checks both).
void launch_portable_forward(const PortableForwardArgs& args, int head_dim, cudaStream_t stream);

}  // namespace longhaul
