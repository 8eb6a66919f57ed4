// SwiGLU: y = silu(gate) up, silu(g) = g / (1 + exp(-g)).
//
// Shapes: tokens x width, bf16. gate and up have rows of `stride` elements, so that both may be halves of one product's
// output (stride 2 width); y and dy are tight, dgate and dup have the stride of gate and up. Arithmetic is fp32, one
// rounding. Widths and strides are multiples of 8, pointers 16-byte aligned; else std::invalid_argument.
// Memory-bound: forward 6 bytes an element of y, backward 10.
//
// Version 1 (this): a block of 256 threads a row, 16-byte accesses, exp by the hardware's exp2 (__expf). H200, 16,384
// rows and more: 3.6 to 4.1 TB/s, backward 4.0 to 4.2.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

struct SwigluShape {
  std::int64_t tokens = 0, width = 0, stride = 0;
};

void swiglu(const SwigluShape& shape, const Bf16* gate, const Bf16* up, Bf16* y, cudaStream_t stream);

// Enqueues dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s, s = 1 / (1 + exp(-gate)). dgate may be gate and dup
// may be up.
void swiglu_backward(const SwigluShape& shape, const Bf16* gate, const Bf16* up, const Bf16* dy, Bf16* dgate, Bf16* dup,
                     cudaStream_t stream);

}  // namespace longhaul
