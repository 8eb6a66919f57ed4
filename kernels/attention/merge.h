// Merge of partial attention outputs by log-sum-exp: what a ring or a list of key shards does after each part.
//
// Memory-bound: a merged row of head_dim costs 2 x 2 head_dim bytes of reading and as much writing (bf16 o), and 12
// bytes of log-sum-exp. The CPU reference is merge_reference (attention_reference.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

struct MergeShape {
  std::int64_t rows = 0;  // of the part
  std::int32_t heads = 0;
  std::int32_t head_dim = 0;  // 64, 128 or 256
};

// Enqueues, for each row i of the part (rows x heads x head_dim, lse rows x heads): row `row_list[i]` of o and lse (row
// i where row_list is null) becomes the attention over both sets of keys, computed in fp32. A list names no row twice.
// Device pointers, 16-byte aligned. Throws std::invalid_argument for another head dimension or negative sizes.
void merge_partials(const MergeShape& shape, const Bf16* part_o, const float* part_lse, const std::int32_t* row_list,
                    Bf16* o, float* lse, cudaStream_t stream);
// The same into fp32 outputs, which long rings accumulate in.
void merge_partials(const MergeShape& shape, const Bf16* part_o, const float* part_lse, const std::int32_t* row_list,
                    float* o, float* lse, cudaStream_t stream);

}  // namespace longhaul
