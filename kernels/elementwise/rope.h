// Rotary position embedding, in place: elements (i, i + head_dim/2) of every head turn by position x frequency[i], as
// Llama's "rotate half" pairs them.
//
// Shapes: x is tokens x heads x head_dim, bf16, `stride` elements between tokens (query, key and value may share rows);
// positions tokens (int32, of the document, not of the packed sequence). head_dim is a multiple of 16 up to 256, stride
// of 8, x 16-byte aligned; else std::invalid_argument. Angles are reduced in double, so that positions in the millions
// lose nothing; sine and cosine and the rest are fp32. Memory-bound: 4 bytes an element.
//
// Version 1 (this): a thread has 8 pairs of one token and loops over the heads, so that sines are taken once a token.
// H200, 16,384 tokens and more: 3.3 to 3.8 TB/s.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/common/bf16.h"

namespace longhaul {

struct RopeShape {
  std::int64_t tokens = 0, stride = 0;
  int heads = 0, head_dim = 0;
};

// base^(-2 i / head_dim) for i < head_dim / 2. Models that stretch the context pass their own instead.
std::vector<double> rope_frequencies(int head_dim, double base);

// Turns forward, or back (`inverse`), which is the backward pass. frequencies: head_dim / 2 values, copied by the call.
void rope(const RopeShape& shape, const std::vector<double>& frequencies, const std::int32_t* positions, bool inverse,
          Bf16* x, cudaStream_t stream);

}  // namespace longhaul
