// Attention of single query rows on a GPU in double precision: a plain kernel that is held to nothing but its
// definition, for judging kernels that are fast (validate/device/row_reference.h says what and why).
//
// One block of threads a row and up to four query heads of one key head: a thread a key for scores, a thread a few
// columns for sums over keys. Three passes over the keys: log-sum-exp; O; dQ = sum of P (dO V - O dO) K scale. Sums
// have one order, so that the bits repeat. Scale 1 / sqrt(head_dim).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

inline constexpr std::int64_t kRowAttentionMostDim = 256;

// All pointers to device memory. Head dimension a multiple of 8, at most kRowAttentionMostDim; q_heads a multiple of
// kv_heads. std::invalid_argument otherwise.
struct RowAttention {
  std::int64_t rows = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  const Bf16* q = nullptr;                  // rows x q_heads head_dim
  const Bf16* d_o = nullptr;                // as q
  const Bf16* kv = nullptr;                 // key rows x 2 kv_heads head_dim: K, then V; 16 bytes aligned
  const std::int64_t* first_key = nullptr;  // by row: its first key, a row of kv
  const std::int64_t* keys = nullptr;       // by row: how many it may see
  std::int64_t mask_stride = 0;
  const std::uint8_t* sees = nullptr;  // rows x mask_stride: 1 where the row sees its i-th key
  double* o = nullptr;                 // rows x q_heads head_dim
  double* dq = nullptr;                // as o; of q as attention takes it
  double* lse = nullptr;               // rows x q_heads, natural logarithm
};
void row_attention(const RowAttention& problem, cudaStream_t stream);

}  // namespace longhaul
