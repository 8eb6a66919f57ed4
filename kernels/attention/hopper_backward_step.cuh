// A warpgroup's part of one step of the Hopper backward kernel, 64 keys x 64 queries a warpgroup: the products it
// starts, and what it does to their results in registers. Needs sm_90a.
//
// The layout of the results is that of wgmma.cuh: a thread holds two keys, eight apart, and the queries
// 8 j + 2 (thread % 4) + {0, 1}.
#pragma once

#include <cstdint>

#include "kernels/attention/hopper_backward_copy.cuh"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/attention/wgmma.cuh"

namespace longhaul::hopper {

// d = A B^T, both by rows of 128 columns.
__device__ inline void start_rows(float (&d)[kRows / 2], std::uint64_t a, std::uint64_t b) {
  fence_registers(d);
  begin_wgmma();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const std::uint32_t inside = i % 4 * 32;
    multiply_rows(d, advance(a, i / 4 * kKeyHalf + inside), advance(b, i / 4 * kQueryHalf + inside), i > 0);
  }
  commit_wgmma();
}
// d += A B: A 64 keys x 64 queries in registers, B 64 queries x 128.
__device__ inline void start_sum(float (&d)[kDim / 2], std::uint32_t (&a)[kRows / 16][4], std::uint64_t b) {
  fence_registers(d);
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) fence_registers(a[i]);
  begin_wgmma();
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) add_product(d, a[i], advance(b, i * 16 * 128));
  commit_wgmma();
}
// d = dS K for half of the columns, over all keys of the tile.
__device__ inline void start_query_gradient(float (&d)[kRows / 2], std::uint64_t d_s, std::uint64_t k) {
  fence_registers(d);
  begin_wgmma();
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    multiply_columns(d, advance(d_s, i * 16 * 128), advance(k, i * 16 * 128), i > 0);
  }
  commit_wgmma();
}

// Scores of pairs that the mask excludes, and of keys past the tile, become minus infinity. `row`: the upper one of the
// thread's two keys, in the tile.
__device__ inline void mask_scores(float (&s)[kRows / 2], const DeviceKeyTiles& tiles, const KeyTile& tile,
                                   const Step& step, int row) {
  const BackwardSegment& segment = tiles.segments[step.segment];
  const PieceRule& piece = tiles.pieces[segment.piece];
  const int query = step.q_row - piece.q_row + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = row + 8 * half;
    const QuerySpan span = seeing_queries(piece, segment.k_first + key);
    const int from = query - span.begin;
    const auto width = static_cast<unsigned>(key < tile.k_count ? max(0, span.end - span.begin) : 0);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      if (static_cast<unsigned>(from + 8 * j) >= width) s[4 * j + 2 * half] = -INFINITY;
      if (static_cast<unsigned>(from + 8 * j + 1) >= width) s[4 * j + 2 * half + 1] = -INFINITY;
    }
  }
}

// Scores (keys x queries) to probabilities.
__device__ inline void probabilities(float (&s)[kRows / 2], const float* lse, float scale_log2) {
  const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 top = *reinterpret_cast<const float2*>(lse + 8 * j + column);
    s[4 * j] = exp2_fast(fmaf(s[4 * j], scale_log2, -top.x));
    s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], scale_log2, -top.y));
    s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], scale_log2, -top.x));
    s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], scale_log2, -top.y));
  }
}

// Gradients of the probabilities to those of the scores, but for the scale. The probabilities are those that dV is made
// of, rounded to bf16: keeping them in fp32 as well would take more registers than there are.
__device__ inline void score_gradients(float (&d_p)[kRows / 2], const std::uint32_t (&p)[kRows / 16][4],
                                       const float* sums) {
  const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 sum = *reinterpret_cast<const float2*>(sums + 8 * j + column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t pair = p[j / 2][2 * (j % 2) + i];
      float& low = d_p[4 * j + 2 * i];
      float& high = d_p[4 * j + 2 * i + 1];
      low = (low - sum.x) * __uint_as_float(pair << 16);
      high = (high - sum.y) * __uint_as_float(pair & 0xFFFF0000U);
    }
  }
}

// Puts dS^T where wgmma finds it as dS with m contiguous. `row` as above.
__device__ inline void store_score_gradients(const std::uint32_t (&d_s)[kRows / 16][4], std::uint8_t* to, int row) {
  const int key = computed_again(row);
  std::uint8_t* at = to + key * 128 + static_cast<int>(threadIdx.x) % 4 * 4;
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int unit = (2 * i + part / 2) ^ (key % 8);
      *reinterpret_cast<std::uint32_t*>(at + part % 2 * 8 * 128 + unit * 16) = d_s[i][part];
    }
  }
  fence_shared_stores();
}

}  // namespace longhaul::hopper
