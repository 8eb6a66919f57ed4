#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/rope.h"

namespace longhaul {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxHeadDim = 256;

struct Frequencies {
  double value[kMaxHeadDim / 2];
};

struct Turn {
  float cosine[kGroupSize], sine[kGroupSize];
};

// Angles below half a turn: sincosf is exact to a few units in the last place there.
__device__ Turn turn_of(const Frequencies& frequencies, int first, std::int32_t position, float sign) {
  constexpr double kTurn = 6.283185307179586476925;
  Turn turn;
#pragma unroll
  for (int j = 0; j < kGroupSize; ++j) {
    const double angle = position * frequencies.value[first + j];
    const auto reduced = static_cast<float>(angle - kTurn * rint(angle / kTurn));
    sincosf(sign * reduced, &turn.sine[j], &turn.cosine[j]);
  }
  return turn;
}

// A thread: 8 pairs of a token, all heads. `groups` = head_dim / 16 threads a token.
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ Frequencies frequencies, const std::int32_t* __restrict__ positions, float sign,
                __nv_bfloat16* __restrict__ x, std::int64_t tokens, std::int64_t stride, int heads, int head_dim) {
  const int groups = head_dim / (2 * kGroupSize);
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t token = thread / groups;
  if (token >= tokens) return;
  const int first = static_cast<int>(thread % groups) * kGroupSize;
  const Turn turn = turn_of(frequencies, first, positions[token], sign);
  __nv_bfloat16* low = x + token * stride + first;
  for (int head = 0; head < heads; ++head, low += head_dim) {
    __nv_bfloat16* high = low + head_dim / 2;
    FloatGroup a = load_group(low), b = load_group(high);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) {
      const float old_a = a.value[j], old_b = b.value[j];
      a.value[j] = old_a * turn.cosine[j] - old_b * turn.sine[j];
      b.value[j] = old_b * turn.cosine[j] + old_a * turn.sine[j];
    }
    store_group(a, low);
    store_group(b, high);
  }
}

}  // namespace

std::vector<double> rope_frequencies(int head_dim, double base) {
  std::vector<double> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) frequencies.push_back(std::pow(base, -2.0 * i / head_dim));
  return frequencies;
}

void rope(const RopeShape& shape, const std::vector<double>& frequencies, const std::int32_t* positions, bool inverse,
          Bf16* x, cudaStream_t stream) {
  require(shape.tokens >= 0, "rope", "the number of tokens", shape.tokens, "0 and more");
  require(shape.heads >= 1, "rope", "the number of heads", shape.heads, "1 and more");
  require(shape.head_dim > 0 && shape.head_dim <= kMaxHeadDim && shape.head_dim % 16 == 0, "rope", "the head dimension",
          shape.head_dim, "multiples of 16 up to 256");
  require(shape.stride >= static_cast<std::int64_t>(shape.heads) * shape.head_dim, "rope", "the stride", shape.stride,
          "at least heads x head dimension");
  require_groups(x, shape.stride, "rope", "the stride");
  const auto count = static_cast<std::int64_t>(frequencies.size());
  require(count == shape.head_dim / 2, "rope", "the number of frequencies", count, "half the head dimension");
  if (shape.tokens == 0) return;
  Frequencies values{};
  for (std::size_t i = 0; i < frequencies.size(); ++i) values.value[i] = frequencies[i];
  const std::int64_t threads = shape.tokens * (shape.head_dim / (2 * kGroupSize));
  rope_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      values, positions, inverse ? -1.0F : 1.0F, reinterpret_cast<__nv_bfloat16*>(x), shape.tokens, shape.stride,
      shape.heads, shape.head_dim);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
