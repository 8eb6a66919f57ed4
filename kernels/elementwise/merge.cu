#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/merge.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;

// weight x value, 0 where the weight is 0: an o that no keys made may hold anything.
__device__ float weighted(float weight, float value) { return weight == 0.0F ? 0.0F : weight * value; }

__global__ void __launch_bounds__(kThreads)
    merge_kernel(float* __restrict__ o, float* __restrict__ l, const __nv_bfloat16* __restrict__ part,
                 const float* __restrict__ part_l, std::int64_t rows, int groups) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = thread / groups;
  const bool inside = row < rows;
  const float a = inside ? l[row] : -INFINITY;
  const float b = inside ? part_l[row] : -INFINITY;
  const float largest = fmaxf(a, b);
  const bool empty = a == -INFINITY && b == -INFINITY;  // not by `largest`, and merged from a - b: fmaxf drops NaN
  const float merged = empty ? -INFINITY : largest + log1pf(__expf(-fabsf(a - b)));
  __syncwarp();  // the whole row has read l
  if (!inside) return;
  if (thread % groups == 0) l[row] = merged;
  const float weight_a = empty ? 0.0F : __expf(a - merged), weight_b = empty ? 0.0F : __expf(b - merged);
  const FloatGroup old = load_group(o + thread * kGroupSize), more = load_group(part + thread * kGroupSize);
  FloatGroup out;
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) {
    out.value[j] = weighted(weight_a, old.value[j]) + weighted(weight_b, more.value[j]);
  }
  store_group(out, o + thread * kGroupSize);
}

}  // namespace

void merge_attention(const TokenMergeShape& shape, float* o, float* l, const Bf16* part, const float* part_l,
                     cudaStream_t stream) {
  require(shape.tokens >= 0, "merge_attention", "the number of tokens", shape.tokens, "0 and more");
  require(shape.heads >= 1, "merge_attention", "the number of heads", shape.heads, "1 and more");
  const int groups = shape.head_dim / kGroupSize;
  require(shape.head_dim % kGroupSize == 0 && groups >= 1 && groups <= 32 && (groups & (groups - 1)) == 0,
          "merge_attention", "the head dimension", shape.head_dim, "8, 16, 32, 64, 128, 256");
  require_groups(o, shape.head_dim, "merge_attention", "the head dimension");
  require_groups(part, shape.head_dim, "merge_attention", "the head dimension");
  if (shape.tokens == 0) return;
  const std::int64_t rows = shape.tokens * shape.heads;
  const std::int64_t threads = rows * groups;
  merge_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      o, l, reinterpret_cast<const __nv_bfloat16*>(part), part_l, rows, groups);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
