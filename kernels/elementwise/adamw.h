// One AdamW step with fp32 master weights (Loshchilov and Hutter, arXiv 1711.05101, as PyTorch orders it), and the bf16
// weights that the next forward pass reads.
//
//   w -= lr decay w ;  m = b1 m + (1 - b1) g ;  v = b2 v + (1 - b2) g^2
//   w -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon)
//
// Shapes: `count` elements each; w, m, v, g fp32, weights bf16. Pointers 16-byte aligned (else std::invalid_argument),
// any count. Arithmetic is fp32; the corrections are taken in double on the host. Memory-bound: 30 bytes an element.
//
// Version 1 (this): eight elements a thread, 16-byte accesses; the last few elements one by one. H200: 3.8 to 3.9 TB/s
// from 2^26 elements on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

struct AdamwSettings {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::int64_t step = 1;  // t, from 1; less throws std::invalid_argument
};

struct AdamwState {
  float* w = nullptr;
  float* m = nullptr;
  float* v = nullptr;
};

// The gradient is not changed. `weights` gets w rounded.
void adamw(const AdamwSettings& settings, std::int64_t count, const float* gradient, const AdamwState& state,
           Bf16* weights, cudaStream_t stream);

}  // namespace longhaul
