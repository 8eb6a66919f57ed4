// RMSNorm over rows: y = x r w with r = 1 / sqrt(mean(x^2) + epsilon).
//
// Shapes: x, y, dx, dy are tokens x width (bf16, tight rows), w and dw width, r tokens (fp32). Arithmetic is fp32 with
// one rounding to bf16 at the end (PyTorch's Llama rounds x r to bf16 before it multiplies by w). Widths are multiples
// of 8 up to 32,768; pointers 16-byte aligned; anything else throws std::invalid_argument.
// Memory-bound: forward 4 bytes an element, backward 6.
//
// Version 1: a block of 256 threads a row, 16-byte accesses, the row read twice (the second time from the L1); backward
// in 264 blocks, their sums of dw added by one thread a column. H200, 65,536 x 4,096: 3.7 TB/s, backward 2.35 TB/s.
// Version 2 (rows wider than 8,192): backward in up to 1,056 blocks, eight threads a column: 2.9 TB/s (3.3 expected),
// 2.1 at 16,384 rows.
// Version 3 (this): backward with the row and the sums of dw in registers, each row read once, the next one asked for
// before this one is added up; 264 blocks. Expected, not measured yet: 3.5 TB/s, 3.1 at 16,384 rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

struct RmsNormShape {
  std::int64_t tokens = 0, width = 0;
  float epsilon = 1e-5F;
};

// Enqueues y and r (kept for the backward pass).
void rms_norm(const RmsNormShape& shape, const Bf16* x, const Bf16* w, Bf16* y, float* r, cudaStream_t stream);

// Floats of scratch memory that the backward pass needs.
std::size_t rms_norm_scratch(const RmsNormShape& shape);

// Enqueues dx = r (w dy - x r^2 mean(w dy x)) and dw = sum over tokens of dy x r (fp32, overwritten). Sums run in a
// fixed order: the same bits every time. dx may be dy.
void rms_norm_backward(const RmsNormShape& shape, const Bf16* x, const Bf16* w, const float* r, const Bf16* dy,
                       Bf16* dx, float* dw, float* scratch, cudaStream_t stream);

}  // namespace longhaul
