// What every forward kernel writes, and with which scale.
#pragma once

#include <cuda_bf16.h>

namespace longhaul {

// Rows x q_heads x head_dim and rows x q_heads, in device memory.
struct ForwardOutput {
  __nv_bfloat16* o = nullptr;
  float* lse = nullptr;  // natural logarithm
  int q_heads = 0;
  float scale = 0;       // of the scores
  float scale_log2 = 0;  // scale log2(e)
};

}  // namespace longhaul
