// Launch of the backward kernels for sm_80 and up; PieceAttention (piece_attention.h) is what callers use.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "kernels/attention/attention_tile.h"

namespace longhaul {

struct PortableBackwardArgs {
  DeviceTiles query_tiles;   // of a forward plan: kPortableTileRows x kPortableTileKeys
  DeviceKeyTiles key_tiles;  // of a backward plan of the same sizes
  int q_heads = 0, kv_heads = 0;
  int q_rows = 0, k_rows = 0;
  float scale = 0, scale_log2 = 0;
  const __nv_bfloat16 *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr;
  const float* lse = nullptr;
  float* row_sums = nullptr;  // scratch: q_rows x q_heads
  __nv_bfloat16 *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
};

// Enqueues. head_dim is 64, 128 or 256; tiles x heads below 2^31 (the caller checks both). The same bits every time.
void launch_portable_backward(const PortableBackwardArgs& args, int head_dim, cudaStream_t stream);

}  // namespace longhaul
