// This file is compiled for sm_90a alone; cross_entropy.cu launches nothing of it elsewhere.
#include <cooperative_groups.h>

#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/cross_entropy_cluster.h"

namespace longhaul {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kGroups = 8;      // of a thread: 64 logits in 32 registers
constexpr int kMostBlocks = 8;  // of a cluster: what every device of Hopper can place
constexpr std::int64_t kBlockLogits = std::int64_t{kThreads} * kGroups * kGroupSize;

// The largest logit and the sum of exp(logit - largest).
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

// The group at `first` of a row; minus infinity past the vocabulary, so that it counts nothing. Rows are whole groups
// long: their stride is a multiple of the group.
__device__ uint4 load_inside(const __nv_bfloat16* row, int first, int vocabulary) {
  constexpr std::uint32_t kLow = 0xFF80U, kHigh = 0xFF800000U;  // minus infinity in either half
  if (first >= vocabulary) return make_uint4(kLow | kHigh, kLow | kHigh, kLow | kHigh, kLow | kHigh);
  uint4 bits = *reinterpret_cast<const uint4*>(row + first);
  if (first + kGroupSize <= vocabulary) return bits;
  std::uint32_t* const words[4] = {&bits.x, &bits.y, &bits.z, &bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + 2 * i >= vocabulary) *words[i] = (*words[i] & 0xFFFF0000U) | kLow;
    if (first + 2 * i + 1 >= vocabulary) *words[i] = (*words[i] & 0xFFFFU) | kHigh;
  }
  return bits;
}

__device__ void store_inside(const FloatGroup& group, __nv_bfloat16* row, int first, int vocabulary) {
  if (first + kGroupSize <= vocabulary) {
    store_group(group, row + first);
    return;
  }
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) {
    if (first + j < vocabulary) row[first + j] = __float2bfloat16_rn(group.value[j]);
  }
}

__device__ ExpSum sum_of(const uint4 (&kept)[kGroups]) {
  float largest = -INFINITY;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const FloatGroup group = floats_of(kept[g]);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) largest = fmaxf(largest, group.value[j]);
  }
  if (largest == -INFINITY) return {largest, 0};
  float sum = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const FloatGroup group = floats_of(kept[g]);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) sum += __expf(group.value[j] - largest);
  }
  return {largest, sum};
}

// A cluster has a row; its blocks take the groups of 512 threads in turn.
__global__ void __launch_bounds__(kThreads, 2)
    cross_entropy_cluster_kernel(__nv_bfloat16* logits, const std::int32_t* __restrict__ targets,
                                 float* __restrict__ loss, int vocabulary, std::int64_t stride, float scale) {
  __shared__ ExpSum own;
  const cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int rank = static_cast<int>(cluster.block_rank());
  const std::int64_t token = blockIdx.x / static_cast<unsigned>(blocks);
  __nv_bfloat16* const row = logits + token * stride;
  const int first = (rank * kThreads + static_cast<int>(threadIdx.x)) * kGroupSize;
  const int step = blocks * kThreads * kGroupSize;

  uint4 kept[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) kept[g] = load_inside(row, first + g * step, vocabulary);
  const std::int32_t target = targets[token];
  const bool ignored = target == kIgnoredTarget;
  const bool outside = !ignored && (target < 0 || target >= vocabulary);
  // Read before anybody overwrites it: nobody does before all blocks have met.
  const float hit = ignored || outside ? NAN : __bfloat162float(row[target]);

  const ExpSum mine = block_reduce<kThreads>(sum_of(kept), combine);
  if (threadIdx.x == 0) own = mine;
  cluster.sync();
  ExpSum all = *cluster.map_shared_rank(&own, 0);
  for (int other = 1; other < blocks; ++other) all = combine(all, *cluster.map_shared_rank(&own, other));
  const float log_sum = outside ? NAN : all.largest + logf(all.sum);
  if (rank == 0 && threadIdx.x == 0) loss[token] = ignored ? 0.0F : log_sum - hit;

#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int at = first + g * step;
    if (at >= vocabulary) break;
    FloatGroup group = floats_of(kept[g]);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) {
      const float one = at + j == target ? 1.0F : 0.0F;
      group.value[j] = ignored ? 0.0F : (__expf(group.value[j] - log_sum) - one) * scale;
    }
    store_inside(group, row, at, vocabulary);
  }
  cluster.sync();  // nobody leaves while its sum may still be read
}

}  // namespace

void launch_cross_entropy_cluster(const CrossEntropyShape& shape, __nv_bfloat16* logits, const std::int32_t* targets,
                                  float scale, float* loss, cudaStream_t stream) {
  static_assert(kMostClusterVocabulary == kMostBlocks * kBlockLogits);
  int blocks = 1;
  while (blocks * kBlockLogits < shape.vocabulary) blocks *= 2;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.tokens * blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  LH_CUDA_CHECK(cudaLaunchKernelEx(&config, cross_entropy_cluster_kernel, logits, targets, loss,
                                   static_cast<int>(shape.vocabulary), shape.stride, scale));
}

}  // namespace longhaul
