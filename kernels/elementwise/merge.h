// Merge of partial attention outputs by their log-sum-exp: what attention over two sets of keys gives over both.
//
//   l = log(exp(l_a) + exp(l_b)) ;  o = exp(l_a - l) o_a + exp(l_b - l) o_b
//
// Shapes: o tokens x heads x head_dim, l tokens x heads (fp32, natural logarithm). The accumulator is fp32 (a ring
// merges many times), the part bf16. A row whose l is minus infinity saw no keys: its o is not read, whatever it holds,
// so an accumulator starts as l = minus infinity with no o; where both are, o = 0 and l stays. head_dim is 8, 16, 32,
// 64, 128 or 256, pointers 16-byte aligned; else std::invalid_argument. Memory-bound: 10 bytes an element.
//
// Version 1 (this): a thread has 8 elements of a row; a row lies within a warp, which then writes its l. H200, 16,384
// tokens of 32 heads and more: 4.0 to 4.2 TB/s.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

struct TokenMergeShape {
  std::int64_t tokens = 0;
  int heads = 0, head_dim = 0;
};

// Enqueues (o, l) = merge of (o, l) with (part, part_l).
void merge_attention(const TokenMergeShape& shape, float* o, float* l, const Bf16* part, const float* part_l,
                     cudaStream_t stream);

}  // namespace longhaul
