#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/elementwise/cast.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any device; larger arrays loop.
constexpr std::int64_t kMaxBlocks = 16384;

__device__ void convert(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }
__device__ void convert(__nv_bfloat16 from, float& to) { to = __bfloat162float(from); }

// Elements that a thread takes at once. Neighbouring threads must write neighbouring 16 bytes: to fp32 four elements
// (of 8 bytes), to bf16 eight (of two times 16).
template <class To>
constexpr int kGroup = 16 / sizeof(To);

template <class T, int kSize>
struct alignas(kSize * sizeof(T) < 16 ? kSize * sizeof(T) : 16) Group {
  T element[kSize];
};

template <class From, class To, int kSize = kGroup<To>>
__global__ void cast_groups_kernel(const Group<From, kSize>* __restrict__ from, Group<To, kSize>* __restrict__ to,
                                   std::int64_t groups) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < groups; i += step) {
    const Group<From, kSize> in = from[i];
    Group<To, kSize> out;
#pragma unroll
    for (int j = 0; j < kSize; ++j) convert(in.element[j], out.element[j]);
    to[i] = out;
  }
}

template <class From, class To>
__global__ void cast_kernel(const From* __restrict__ from, To* __restrict__ to, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    convert(from[i], to[i]);
  }
}

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMaxBlocks));
}

bool groups_align(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <class From, class To>
void launch(const From* from, To* to, std::int64_t count, cudaStream_t stream) {
  constexpr int kSize = kGroup<To>;
  const std::int64_t groups = groups_align(from) && groups_align(to) && count > 0 ? count / kSize : 0;
  if (groups > 0) {
    cast_groups_kernel<From, To><<<blocks_for(groups), kThreads, 0, stream>>>(
        reinterpret_cast<const Group<From, kSize>*>(from), reinterpret_cast<Group<To, kSize>*>(to), groups);
    LH_CUDA_CHECK(cudaGetLastError());
  }
  const std::int64_t done = groups * kSize;
  if (count <= done) return;
  cast_kernel<<<blocks_for(count - done), kThreads, 0, stream>>>(from + done, to + done, count - done);
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
