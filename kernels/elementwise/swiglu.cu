#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/swiglu.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __nv_bfloat16* __restrict__ gate, const __nv_bfloat16* __restrict__ up,
                   __nv_bfloat16* __restrict__ y, int width, std::int64_t stride) {
  const std::int64_t in_row = blockIdx.x * stride;
  const std::int64_t out_row = static_cast<std::int64_t>(blockIdx.x) * width;
  for (int i = static_cast<int>(threadIdx.x) * kGroupSize; i < width; i += kThreads * kGroupSize) {
    const FloatGroup g = load_group(gate + in_row + i), u = load_group(up + in_row + i);
    FloatGroup out;
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) out.value[j] = g.value[j] * sigmoid(g.value[j]) * u.value[j];
    store_group(out, y + out_row + i);
  }
}

__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __nv_bfloat16* gate, const __nv_bfloat16* up, const __nv_bfloat16* __restrict__ dy,
                    __nv_bfloat16* dgate, __nv_bfloat16* dup, int width, std::int64_t stride) {
  const std::int64_t in_row = blockIdx.x * stride;
  const std::int64_t out_row = static_cast<std::int64_t>(blockIdx.x) * width;
  for (int i = static_cast<int>(threadIdx.x) * kGroupSize; i < width; i += kThreads * kGroupSize) {
    const FloatGroup g = load_group(gate + in_row + i), u = load_group(up + in_row + i);
    const FloatGroup d = load_group(dy + out_row + i);
    FloatGroup out_gate, out_up;
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) {
      const float s = sigmoid(g.value[j]);
      out_gate.value[j] = d.value[j] * u.value[j] * s * (1.0F + g.value[j] * (1.0F - s));
      out_up.value[j] = d.value[j] * g.value[j] * s;
    }
    store_group(out_gate, dgate + in_row + i);
    store_group(out_up, dup + in_row + i);
  }
}

const __nv_bfloat16* device(const Bf16* pointer) { return reinterpret_cast<const __nv_bfloat16*>(pointer); }
__nv_bfloat16* device(Bf16* pointer) { return reinterpret_cast<__nv_bfloat16*>(pointer); }

void check_shape(const SwigluShape& shape, std::initializer_list<const void*> tensors) {
  require(shape.tokens >= 0, "swiglu", "the number of tokens", shape.tokens, "0 and more");
  require(shape.width > 0, "swiglu", "the width", shape.width, "8 and more");
  require(shape.stride >= shape.width && shape.stride % 8 == 0, "swiglu", "the stride", shape.stride,
          "multiples of 8, not below the width");
  for (const void* tensor : tensors) require_groups(tensor, shape.width, "swiglu", "the width");
}

}  // namespace

void swiglu(const SwigluShape& shape, const Bf16* gate, const Bf16* up, Bf16* y, cudaStream_t stream) {
  check_shape(shape, {gate, up, y});
  if (shape.tokens == 0) return;
  forward_kernel<<<static_cast<unsigned>(shape.tokens), kThreads, 0, stream>>>(
      device(gate), device(up), device(y), static_cast<int>(shape.width), shape.stride);
  LH_CUDA_CHECK(cudaGetLastError());
}

void swiglu_backward(const SwigluShape& shape, const Bf16* gate, const Bf16* up, const Bf16* dy, Bf16* dgate, Bf16* dup,
                     cudaStream_t stream) {
  check_shape(shape, {gate, up, dy, dgate, dup});
  if (shape.tokens == 0) return;
  backward_kernel<<<static_cast<unsigned>(shape.tokens), kThreads, 0, stream>>>(
      device(gate), device(up), device(dy), device(dgate), device(dup), static_cast<int>(shape.width), shape.stride);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
