// Cross-entropy of every token's logits and, in the same call, their gradient in place.
//
// Shapes: logits tokens x vocabulary, bf16, `stride` elements between rows; targets tokens (int32): a class, or
// kIgnoredTarget, whose loss and gradient are 0; loss tokens (fp32). Gradient: (softmax - one-hot of the target) scale,
// rounded once to bf16, written over the logits; padding beyond the vocabulary is left alone. Any vocabulary; rows that
// start at multiples of 16 bytes (stride a multiple of 8, pointer 16-byte aligned; else std::invalid_argument). A
// target outside the vocabulary gives a NaN loss and gradient: on the device nobody can be told. Memory-bound: 2 bytes
// a logit for the loss, 4 with the gradient as long as a row stays in the L2.
//
// Version 1 (this): a block of 512 threads a row; maximum and sum in one pass (the sum is rescaled when the maximum
// rises), the gradient in a second pass over the same row. H200, 16,384 tokens, vocabulary 128,256: loss 4.4 TB/s, with
// gradient 2.8 TB/s of the 4 bytes, as the rows in flight exceed the L2 and are read twice.
// Version 2 (dropped): one block of 1,024 threads a multiprocessor and four loads in flight a thread: 2.7 TB/s (3.3
// expected), the loss alone 4.0 with the four loads. 132 rows are 34 MB, more than half of the 60 MB of L2.
// Version 3 (this, with gradient, Hopper up to a vocabulary of 262,144; elsewhere version 1): a row in the registers of
// a cluster of 1 to 8 blocks, so that it is read once; the blocks' sums meet through distributed shared memory, in rank
// order. 66 rows of 257 KB are in flight. Expected, not measured yet: 3.6 TB/s of the 4 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

inline constexpr std::int32_t kIgnoredTarget = -100;  // as PyTorch's

struct CrossEntropyShape {
  std::int64_t tokens = 0, vocabulary = 0, stride = 0;
};

void cross_entropy(const CrossEntropyShape& shape, const Bf16* logits, const std::int32_t* targets, float* loss,
                   cudaStream_t stream);

// Loss, and the gradient over the logits. `scale`: what each token counts, for a mean 1 / counted tokens.
void cross_entropy_with_gradient(const CrossEntropyShape& shape, Bf16* logits, const std::int32_t* targets, float scale,
                                 float* loss, cudaStream_t stream);

}  // namespace longhaul
