#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/cross_entropy.h"
#include "kernels/elementwise/cross_entropy_cluster.h"

namespace longhaul {
namespace {

constexpr int kThreads = 512;

// The largest logit so far and the sum of exp(logit - largest).
struct ExpSum {
  float largest, sum;
  __device__ ExpSum shuffle_xor(int offset) const {
    return {__shfl_xor_sync(0xFFFFFFFFU, largest, offset), __shfl_xor_sync(0xFFFFFFFFU, sum, offset)};
  }
};

__device__ ExpSum combine(ExpSum a, ExpSum b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, 0};
  return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

__device__ void add(ExpSum& all, const FloatGroup& logits) {
  float largest = all.largest;
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) largest = fmaxf(largest, logits.value[j]);
  if (largest == -INFINITY) return;
  float sum = all.sum * __expf(all.largest - largest);
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) sum += __expf(logits.value[j] - largest);
  all = {largest, sum};
}

__device__ FloatGroup gradient_of(FloatGroup logits, std::int64_t first, float log_sum, std::int32_t target,
                                  float scale) {
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) {
    const float hit = first + j == target ? 1.0F : 0.0F;
    logits.value[j] = (__expf(logits.value[j] - log_sum) - hit) * scale;
  }
  return logits;
}

// One logit where a row does not end with a whole group; the others count nothing.
__device__ FloatGroup one_of(const __nv_bfloat16* row, std::int64_t index) {
  FloatGroup group;
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) group.value[j] = -INFINITY;
  group.value[0] = __bfloat162float(row[index]);
  return group;
}

template <bool kGradient>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(__nv_bfloat16* logits, const std::int32_t* __restrict__ targets, float* __restrict__ loss,
                         std::int64_t vocabulary, std::int64_t stride, float scale) {
  __nv_bfloat16* row = logits + blockIdx.x * stride;
  const std::int64_t whole = vocabulary / kGroupSize * kGroupSize;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * kGroupSize;
  const std::int64_t step = kThreads * kGroupSize;
  const std::int32_t target = targets[blockIdx.x];
  const bool ignored = target == kIgnoredTarget;
  const bool outside = !ignored && (target < 0 || target >= vocabulary);
  // Read before anybody overwrites it.
  const float hit = ignored || outside ? NAN : __bfloat162float(row[target]);

  ExpSum mine = {-INFINITY, 0};
  for (std::int64_t i = first; i < whole; i += step) add(mine, load_group(row + i));
  for (std::int64_t i = whole + threadIdx.x; i < vocabulary; i += kThreads) add(mine, one_of(row, i));
  const ExpSum all = block_reduce<kThreads>(mine, combine);
  const float log_sum = outside ? NAN : all.largest + logf(all.sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = ignored ? 0.0F : log_sum - hit;

  if constexpr (kGradient) {
    for (std::int64_t i = first; i < whole; i += step) {
      store_group(ignored ? FloatGroup{} : gradient_of(load_group(row + i), i, log_sum, target, scale), row + i);
    }
    for (std::int64_t i = whole + threadIdx.x; i < vocabulary; i += kThreads) {
      const float value = ignored ? 0.0F : gradient_of(one_of(row, i), i, log_sum, target, scale).value[0];
      row[i] = __float2bfloat16_rn(value);
    }
  }
}

void check_shape(const CrossEntropyShape& shape, const void* logits) {
  require(shape.tokens >= 0, "cross_entropy", "the number of tokens", shape.tokens, "0 and more");
  require(shape.vocabulary >= 1 && shape.vocabulary <= shape.stride, "cross_entropy", "the vocabulary",
          shape.vocabulary, "1 up to the stride");
  require_groups(logits, shape.stride, "cross_entropy", "the stride");
}

bool on_hopper() {
  int device = 0, major = 0, minor = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

}  // namespace

void cross_entropy(const CrossEntropyShape& shape, const Bf16* logits, const std::int32_t* targets, float* loss,
                   cudaStream_t stream) {
  check_shape(shape, logits);
  if (shape.tokens == 0) return;
  // Not written to without the gradient.
  auto* row = reinterpret_cast<__nv_bfloat16*>(const_cast<Bf16*>(logits));
  cross_entropy_kernel<false><<<static_cast<unsigned>(shape.tokens), kThreads, 0, stream>>>(
      row, targets, loss, shape.vocabulary, shape.stride, 0.0F);
  LH_CUDA_CHECK(cudaGetLastError());
}

void cross_entropy_with_gradient(const CrossEntropyShape& shape, Bf16* logits, const std::int32_t* targets, float scale,
                                 float* loss, cudaStream_t stream) {
  check_shape(shape, logits);
  if (shape.tokens == 0) return;
  if (shape.vocabulary <= kMostClusterVocabulary && on_hopper()) {
    launch_cross_entropy_cluster(shape, reinterpret_cast<__nv_bfloat16*>(logits), targets, scale, loss, stream);
    return;
  }
  cross_entropy_kernel<true><<<static_cast<unsigned>(shape.tokens), kThreads, 0, stream>>>(
      reinterpret_cast<__nv_bfloat16*>(logits), targets, loss, shape.vocabulary, shape.stride, scale);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
