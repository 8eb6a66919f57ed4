// Eight elements at a time, and sums over a block: what the memory-bound kernels share.
//
// Arithmetic is fp32. Pointers to groups are 16-byte aligned.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace longhaul {

inline constexpr int kGroupSize = 8;  // bf16 in 16 bytes

struct FloatGroup {
  float value[kGroupSize];
};

// Eight bf16 as they lie in memory.
__device__ inline FloatGroup floats_of(const uint4& bits) {
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  FloatGroup group;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    group.value[2 * i] = __uint_as_float(words[i] << 16);
    group.value[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
  return group;
}

__device__ inline FloatGroup load_group(const __nv_bfloat16* from) {
  return floats_of(*reinterpret_cast<const uint4*>(from));
}

__device__ inline FloatGroup load_group(const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// Rounds to nearest even.
__device__ inline void store_group(const FloatGroup& group, __nv_bfloat16* to) {
  __nv_bfloat162 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(group.value[2 * i], group.value[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
}

__device__ inline void store_group(const FloatGroup& group, float* to) {
  const float* v = group.value;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// The combination of `value` over the block, on every thread; `kThreads` is the block's size, a multiple of 32. The
// order is fixed, so that results repeat bit for bit. May be called again at once.
template <int kThreads, class T, class Combine>
__device__ T block_reduce(T value, Combine combine) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  constexpr int kWarps = kThreads / 32;
  __shared__ T partial[kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, value.shuffle_xor(offset));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, partial[warp]);
  __syncthreads();
  return value;
}

struct ShuffledFloat {
  float value;
  __device__ ShuffledFloat shuffle_xor(int offset) const { return {__shfl_xor_sync(0xFFFFFFFFU, value, offset)}; }
};

template <int kThreads>
__device__ float block_sum(float value) {
  const auto add = [](ShuffledFloat a, ShuffledFloat b) { return ShuffledFloat{a.value + b.value}; };
  return block_reduce<kThreads>(ShuffledFloat{value}, add).value;
}

}  // namespace longhaul
