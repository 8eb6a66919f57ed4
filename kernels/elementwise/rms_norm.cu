#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/rms_norm.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxWidth = 32768;
// Most blocks of the backward pass: 2 for each of an H200's multiprocessors where rows are kept in registers, else 8.
constexpr std::int64_t kMaxRegisterParts = 264, kMaxParts = 1056;
// Rows up to here are kept in registers.
constexpr std::int64_t kMaxRegisterWidth = 8192;
// Of the kernel that adds the blocks' sums: a warp's columns, and threads that share a column.
constexpr int kColumns = 32, kAdders = 8;

// Blocks of the backward pass. Their partial sums of dw are added in order, so it depends on the shape alone: the same
// bits on every device. At least 4 rows a block, so that the sums cost little beside the rows.
int parts_of(const RmsNormShape& shape) {
  const std::int64_t most = shape.width <= kMaxRegisterWidth ? kMaxRegisterParts : kMaxParts;
  return static_cast<int>(std::clamp<std::int64_t>(shape.tokens / 4, 1, most));
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w,
                   __nv_bfloat16* __restrict__ y, float* __restrict__ r, int width, float epsilon) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * width;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) * kGroupSize; i < width; i += kThreads * kGroupSize) {
    const FloatGroup in = load_group(x + row + i);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) squares += in.value[j] * in.value[j];
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) r[blockIdx.x] = scale;
  for (int i = static_cast<int>(threadIdx.x) * kGroupSize; i < width; i += kThreads * kGroupSize) {
    FloatGroup out = load_group(x + row + i);
    const FloatGroup weight = load_group(w + i);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) out.value[j] *= scale * weight.value[j];
    store_group(out, y + row + i);
  }
}

// Rows of up to kBlock x kGroups x 8 columns. Block b takes rows b, b + gridDim.x, ...; a thread keeps its columns of
// the row and its sums of dw in registers, so that a row is read once, and asks for the next row before the block adds
// up this one. Columns past the width are zeros.
template <int kBlock, int kGroups>
__global__ void __launch_bounds__(kBlock, 512 / kBlock)
    backward_register_kernel(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w,
                             const float* __restrict__ r, const __nv_bfloat16* dy, __nv_bfloat16* dx,
                             float* __restrict__ partial_dw, std::int64_t tokens, int width) {
  uint4 weights[kGroups], next_x[kGroups], next_dy[kGroups];
  FloatGroup dw[kGroups];
  const auto column = [](int g) { return (g * kBlock + static_cast<int>(threadIdx.x)) * kGroupSize; };
  const auto fetch = [&](std::int64_t token) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (column(g) >= width) continue;
      next_x[g] = *reinterpret_cast<const uint4*>(x + token * width + column(g));
      next_dy[g] = *reinterpret_cast<const uint4*>(dy + token * width + column(g));
    }
  };
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    weights[g] = next_x[g] = next_dy[g] = make_uint4(0, 0, 0, 0);
    dw[g] = FloatGroup{};
    if (column(g) < width) weights[g] = *reinterpret_cast<const uint4*>(w + column(g));
  }
  if (blockIdx.x < tokens) fetch(blockIdx.x);
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    uint4 row_x[kGroups], row_dy[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) row_x[g] = next_x[g], row_dy[g] = next_dy[g];
    const float scale = r[token];
    if (token + gridDim.x < tokens) fetch(token + gridDim.x);
    float dot = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const FloatGroup in = floats_of(row_x[g]), weight = floats_of(weights[g]), gradient = floats_of(row_dy[g]);
#pragma unroll
      for (int j = 0; j < kGroupSize; ++j) dot += weight.value[j] * gradient.value[j] * in.value[j];
    }
    const float mean = block_sum<kBlock>(dot) * scale * scale / static_cast<float>(width);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const FloatGroup in = floats_of(row_x[g]), weight = floats_of(weights[g]), gradient = floats_of(row_dy[g]);
      FloatGroup out;
#pragma unroll
      for (int j = 0; j < kGroupSize; ++j) {
        out.value[j] = scale * (weight.value[j] * gradient.value[j] - in.value[j] * mean);
        dw[g].value[j] += gradient.value[j] * in.value[j] * scale;
      }
      if (column(g) < width) store_group(out, dx + token * width + column(g));
    }
  }
  float* part = partial_dw + static_cast<std::int64_t>(blockIdx.x) * width;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (column(g) < width) store_group(dw[g], part + column(g));
  }
}

// Wider rows: block b takes rows b, b + gridDim.x, ...; a thread owns the same columns of all of them, so that its sums
// of dw need no synchronisation.
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w,
                    const float* __restrict__ r, const __nv_bfloat16* dy, __nv_bfloat16* dx,
                    float* __restrict__ partial_dw, std::int64_t tokens, int width) {
  extern __shared__ float4 shared[];
  float* dw = reinterpret_cast<float*>(shared);
  const int first = static_cast<int>(threadIdx.x) * kGroupSize;
  for (int i = first; i < width; i += kThreads * kGroupSize) store_group(FloatGroup{}, dw + i);

  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const std::int64_t row = token * width;
    const float scale = r[token];
    float dot = 0;
    for (int i = first; i < width; i += kThreads * kGroupSize) {
      const FloatGroup in = load_group(x + row + i), weight = load_group(w + i), gradient = load_group(dy + row + i);
#pragma unroll
      for (int j = 0; j < kGroupSize; ++j) dot += weight.value[j] * gradient.value[j] * in.value[j];
    }
    const float mean = block_sum<kThreads>(dot) * scale * scale / static_cast<float>(width);
    for (int i = first; i < width; i += kThreads * kGroupSize) {
      const FloatGroup in = load_group(x + row + i), weight = load_group(w + i), gradient = load_group(dy + row + i);
      FloatGroup sum = load_group(dw + i), out;
#pragma unroll
      for (int j = 0; j < kGroupSize; ++j) {
        out.value[j] = scale * (weight.value[j] * gradient.value[j] - in.value[j] * mean);
        sum.value[j] += gradient.value[j] * in.value[j] * scale;
      }
      store_group(out, dx + row + i);
      store_group(sum, dw + i);
    }
  }
  float* part = partial_dw + static_cast<std::int64_t>(blockIdx.x) * width;
  for (int i = first; i < width; i += kThreads * kGroupSize) store_group(load_group(dw + i), part + i);
}

__global__ void __launch_bounds__(kColumns* kAdders)
    sum_parts_kernel(const float* __restrict__ partial_dw, float* __restrict__ dw, int width, int parts) {
  __shared__ float sums[kAdders][kColumns];
  const int column = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int part = static_cast<int>(threadIdx.y); part < parts && column < width; part += kAdders) {
    sum += partial_dw[static_cast<std::int64_t>(part) * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
#pragma unroll
  for (int adder = 1; adder < kAdders; ++adder) sum += sums[adder][threadIdx.x];
  dw[column] = sum;
}

const __nv_bfloat16* device(const Bf16* pointer) { return reinterpret_cast<const __nv_bfloat16*>(pointer); }
__nv_bfloat16* device(Bf16* pointer) { return reinterpret_cast<__nv_bfloat16*>(pointer); }

void check_shape(const RmsNormShape& shape, std::initializer_list<const void*> tensors) {
  require(shape.tokens >= 0, "rms_norm", "the number of tokens", shape.tokens, "0 and more");
  require(shape.width > 0 && shape.width <= kMaxWidth, "rms_norm", "the width", shape.width, "8 to 32768");
  for (const void* tensor : tensors) require_groups(tensor, shape.width, "rms_norm", "the width");
}

}  // namespace

void rms_norm(const RmsNormShape& shape, const Bf16* x, const Bf16* w, Bf16* y, float* r, cudaStream_t stream) {
  check_shape(shape, {x, w, y});
  if (shape.tokens == 0) return;
  forward_kernel<<<static_cast<unsigned>(shape.tokens), kThreads, 0, stream>>>(
      device(x), device(w), device(y), r, static_cast<int>(shape.width), shape.epsilon);
  LH_CUDA_CHECK(cudaGetLastError());
}

std::size_t rms_norm_scratch(const RmsNormShape& shape) {
  return static_cast<std::size_t>(parts_of(shape)) * static_cast<std::size_t>(shape.width);
}

void rms_norm_backward(const RmsNormShape& shape, const Bf16* x, const Bf16* w, const float* r, const Bf16* dy,
                       Bf16* dx, float* dw, float* scratch, cudaStream_t stream) {
  check_shape(shape, {x, w, dy, dx, scratch});
  const int width = static_cast<int>(shape.width);
  const int parts = parts_of(shape);
  const auto launch = [&](auto kernel, int threads, int shared_bytes) {
    kernel<<<static_cast<unsigned>(parts), static_cast<unsigned>(threads), static_cast<unsigned>(shared_bytes),
             stream>>>(device(x), device(w), r, device(dy), device(dx), scratch, shape.tokens, width);
    LH_CUDA_CHECK(cudaGetLastError());
  };
  if (width <= kThreads * kGroupSize) {
    launch(backward_register_kernel<kThreads, 1>, kThreads, 0);
  } else if (width <= 2 * kThreads * kGroupSize) {
    launch(backward_register_kernel<kThreads, 2>, kThreads, 0);
  } else if (width <= kMaxRegisterWidth) {
    launch(backward_register_kernel<2 * kThreads, 2>, 2 * kThreads, 0);
  } else {
    const int shared_bytes = width * static_cast<int>(sizeof(float));
    LH_CUDA_CHECK(cudaFuncSetAttribute(backward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    launch(backward_kernel, kThreads, shared_bytes);
  }
  sum_parts_kernel<<<static_cast<unsigned>((width + kColumns - 1) / kColumns), dim3(kColumns, kAdders), 0, stream>>>(
      scratch, dw, width, parts);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
