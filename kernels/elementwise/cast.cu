#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/elementwise/cast.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any device; larger arrays loop.
constexpr std::int64_t kMaxBlocks = 16384;

__device__ void convert(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }
__device__ void convert(__nv_bfloat16 from, float& to) { to = __bfloat162float(from); }

template <class From, class To>
__global__ void cast_kernel(const From* __restrict__ from, To* __restrict__ to, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    convert(from[i], to[i]);
  }
}

template <class From, class To>
void launch(const From* from, To* to, std::int64_t count, cudaStream_t stream) {
  if (count <= 0) return;
  const std::int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  cast_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(from, to, count);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

static_assert(sizeof(Bf16) == sizeof(__nv_bfloat16));

void cast_to_bf16(const float* from, Bf16* to, std::int64_t count, cudaStream_t stream) {
  launch(from, reinterpret_cast<__nv_bfloat16*>(to), count, stream);
}

void cast_to_fp32(const Bf16* from, float* to, std::int64_t count, cudaStream_t stream) {
  launch(reinterpret_cast<const __nv_bfloat16*>(from), to, count, stream);
}

}  // namespace longhaul
