// One thread's part of attention over tiles: masks, the online softmax and the store of its two rows.
//
// The layout is that of the accumulators of mma and wgmma: a thread holds two rows, eight apart, and of each group of
// eight columns the pair 2 (lane % 4) + {0, 1}: s[4 j + {0, 1}] of the upper row, s[4 j + {2, 3}] of the lower one.
// Four lanes share a row. Probabilities are kept relative to the largest score so far (Milakov and Gimelshein, 2018;
// FlashAttention-2, Algorithm 1), in powers of two, since the hardware's exponential is exp2.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/attention_tile.h"
#include "kernels/attention/forward_args.h"

namespace longhaul {

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// The key tiles of a query tile in order, as one thread sees them: it holds two rows, eight apart.
struct KeyWalk {
  const DeviceTiles& tiles;
  const AttentionTile& tile;
  int row;      // the upper row, in the tile
  int segment;  // the next one
  int key_tile = 0, key_tiles = 0;
  int first_key = 0;  // row of the segment's first key
  int full_from = 0, full_to = 0;
  int begin[2] = {0, 0}, width[2] = {0, 0};  // visible keys, from the segment's first

  __device__ KeyWalk(const DeviceTiles& all, const AttentionTile& t, int r)
      : tiles(all), tile(t), row(r), segment(t.segment_begin) {}

  __device__ void next() {
    if (++key_tile < key_tiles) return;
    const AttentionSegment& s = tiles.segments[segment++];
    const PieceRule& piece = tiles.pieces[s.piece];
    key_tile = 0;
    first_key = piece.k_row + s.k_first;
    key_tiles = s.key_tiles;
    full_from = s.full_from;
    full_to = s.full_to;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const KeySpan span = visible_keys(piece, tile.q_row - piece.q_row + min(row + 8 * i, tile.q_count - 1));
      begin[i] = span.begin - s.k_first;
      width[i] = max(0, span.end - span.begin);
    }
  }
  // First row of the present key tile.
  __device__ int key_row(int tile_keys) const { return first_key + key_tile * tile_keys; }
  __device__ bool masked() const { return key_tile < full_from || key_tile >= full_to; }
};

struct RowState {
  float top = -INFINITY;  // of the raw scores
  float sum = 0;          // of the probabilities in this thread's columns
};

// Scores of pairs that the mask excludes become minus infinity.
template <int kScores>
__device__ inline void apply_mask(float (&s)[kScores], const KeyWalk& walk) {
  constexpr int kKeys = 2 * kScores;
  const int column = 2 * (static_cast<int>(threadIdx.x) % 4) + walk.key_tile * kKeys;
  const int from0 = column - walk.begin[0];
  const int from1 = column - walk.begin[1];
  const auto width0 = static_cast<unsigned>(walk.width[0]);
  const auto width1 = static_cast<unsigned>(walk.width[1]);
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
    if (static_cast<unsigned>(from0 + 8 * j) >= width0) s[4 * j] = -INFINITY;
    if (static_cast<unsigned>(from0 + 8 * j + 1) >= width0) s[4 * j + 1] = -INFINITY;
    if (static_cast<unsigned>(from1 + 8 * j) >= width1) s[4 * j + 2] = -INFINITY;
    if (static_cast<unsigned>(from1 + 8 * j + 1) >= width1) s[4 * j + 3] = -INFINITY;
  }
}

// Over the four lanes that share a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

// Scores of one row (kRow 0 or 1 of the thread's two) to probabilities; returns what earlier sums shrink by.
template <int kRow, int kScores>
__device__ inline float softmax_row(float (&s)[kScores], RowState& state, float scale_log2) {
  float top = state.top;
#pragma unroll
  for (int j = 0; j < kScores / 4; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * kRow], s[4 * j + 2 * kRow + 1]));
  top = quad_max(top);
  // A row that has seen no key yet: subtract 0, so that exp2(-inf) is 0 and not NaN.
  const float base = top == -INFINITY ? 0.0F : top;
  const float shift = base * scale_log2;
  // From the difference, which is exactly 0 while the top stays: what `shift` was rounded by would otherwise weigh
  // earlier keys anew in every tile, some 3e-7 each.
  const float shrink = exp2_fast((state.top - base) * scale_log2);
  state.top = top;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kScores / 4; ++j) {
    s[4 * j + 2 * kRow] = exp2_fast(fmaf(s[4 * j + 2 * kRow], scale_log2, -shift));
    s[4 * j + 2 * kRow + 1] = exp2_fast(fmaf(s[4 * j + 2 * kRow + 1], scale_log2, -shift));
    sum += s[4 * j + 2 * kRow] + s[4 * j + 2 * kRow + 1];
  }
  state.sum = fmaf(state.sum, shrink, sum);
  return shrink;
}

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Probabilities as the A operand of products of 16 keys each.
template <int kScores>
__device__ inline void pack_probabilities(const float (&s)[kScores], std::uint32_t (&p)[kScores / 8][4]) {
#pragma unroll
  for (int step = 0; step < kScores / 8; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[step][i] = pack_bf16(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
  }
}

// Lane q of a quad gets from each of its four lanes their value q.
__device__ inline void transpose_quad(std::uint32_t (&v)[4]) {
  const bool odd = threadIdx.x % 2 != 0;
  const bool upper = threadIdx.x % 4 >= 2;
  const std::uint32_t a = __shfl_xor_sync(0xFFFFFFFFU, odd ? v[0] : v[1], 1);
  const std::uint32_t b = __shfl_xor_sync(0xFFFFFFFFU, odd ? v[2] : v[3], 1);
  (odd ? v[0] : v[1]) = a;
  (odd ? v[2] : v[3]) = b;
  const std::uint32_t c = __shfl_xor_sync(0xFFFFFFFFU, upper ? v[0] : v[2], 2);
  const std::uint32_t d = __shfl_xor_sync(0xFFFFFFFFU, upper ? v[1] : v[3], 2);
  (upper ? v[0] : v[2]) = c;
  (upper ? v[1] : v[3]) = d;
}

// Writes one of the thread's two rows (kRow 0 or 1), times `factor`, as bf16 from `row` on. All lanes of a quad call
// it, each with its own part of the row; nothing is written where `inside` is false.
template <int kRow, int kOutputs>
__device__ inline void store_row(const float (&x)[kOutputs], float factor, bool inside, __nv_bfloat16* row) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int group = 0; group < kOutputs / 16; ++group) {
    std::uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = 4 * (4 * group + j) + 2 * kRow;
      v[j] = pack_bf16(x[at] * factor, x[at + 1] * factor);
    }
    transpose_quad(v);
    if (inside) *reinterpret_cast<uint4*>(row + (4 * group + lane) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

// Divides by the sum of probabilities and writes one row of the tile and its log-sum-exp. A row that saw no key gets 0
// and minus infinity; one that saw NaN has no sum, and gets NaN, which no merge takes for a row without keys.
template <int kRow, int kOutputs>
__device__ inline void store_output_row(const ForwardOutput& out, const AttentionTile& tile, int row, int head,
                                        const float (&o)[kOutputs], const RowState& state) {
  const float sum = quad_sum(state.sum);
  const bool empty = sum == 0;
  const bool inside = row < tile.q_count;
  const std::int64_t place = static_cast<std::int64_t>(tile.q_row + row) * out.q_heads + head;
  if (threadIdx.x % 4 == 0 && inside) out.lse[place] = empty ? -INFINITY : fmaf(state.top, out.scale, logf(sum));
  store_row<kRow>(o, empty ? 0.0F : 1.0F / sum, inside, out.o + place * 2 * kOutputs);
}

template <int kOutputs>
__device__ inline void store_rows(const ForwardOutput& out, const AttentionTile& tile, int upper_row, int head,
                                  const float (&o)[kOutputs], const RowState (&rows)[2]) {
  store_output_row<0>(out, tile, upper_row, head, o, rows[0]);
  store_output_row<1>(out, tile, upper_row + 8, head, o, rows[1]);
}

}  // namespace longhaul
