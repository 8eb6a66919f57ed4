// Attention backward for sm_80 and up: mma.sync, head dimension 64, 128 or 256, bf16 in and out, no atomics.
//
// Four kernels: the sums of dO O; dV and dK, a block a tile of 64 keys, over the query tiles that see it and the query
// heads that share its key head; dQ, a block a tile of 64 queries, over its keys. Scores are computed anew in each: 8
// products where 5 would do. Simple on purpose: it is the path for every mask and head dimension where the Hopper
// kernel does not run. A warp owns 16 rows of the block's tile.
#include "kernels/attention/portable_backward.h"
#include "kernels/attention/portable_tile.cuh"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

using namespace portable;

constexpr int kTile = kTileRows;

template <int kDim>
using Rows = __nv_bfloat16[kTile][kDim + kPad];

// The block's own tile (two tensors) and the one that it goes over.
template <int kDim>
struct Shared {
  Rows<kDim> own_a, own_b, other_a, other_b;
};

// One warp a (row, head).
__global__ void __launch_bounds__(256) row_sums_kernel(const PortableBackwardArgs args, int head_dim) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const bool inside = place < static_cast<std::int64_t>(args.q_rows) * args.q_heads;
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % 32; inside && d < head_dim; d += 32) {
    sum += __bfloat162float(args.o[place * head_dim + d]) * __bfloat162float(args.d_o[place * head_dim + d]);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  if (inside && threadIdx.x % 32 == 0) args.row_sums[place] = sum;
}

// x = A B^T: the warp's 16 rows of A, 64 rows of B.
template <int kDim>
__device__ void multiply_rows(float (&x)[kTile / 2], const Rows<kDim>& a_rows, const Rows<kDim>& b_rows, int warp_row,
                              int lane) {
#pragma unroll
  for (float& value : x) value = 0;
#pragma unroll 4
  for (int d = 0; d < kDim; d += 16) {
    std::uint32_t a[4];
    load_matrices(a, &a_rows[warp_row + lane % 16][d + lane / 16 * 8]);
#pragma unroll
    for (int n = 0; n < kTile; n += 16) {
      std::uint32_t b[4];
      load_matrices(b, &b_rows[n + lane % 8 + lane / 16 * 8][d + lane / 8 % 2 * 8]);
      multiply(&x[n / 2], a, b[0], b[1]);
      multiply(&x[n / 2 + 4], a, b[2], b[3]);
    }
  }
}

// x += P B: 16 x 64 in registers, 64 rows of B.
template <int kDim>
__device__ void add_rows(float (&x)[kDim / 2], const std::uint32_t (&p)[kTile / 16][4], const Rows<kDim>& b_rows,
                         int lane) {
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      std::uint32_t b[4];
      load_transposed(b, &b_rows[step * 16 + lane % 16][d + lane / 16 * 8]);
      multiply(&x[d / 2], p[step], b[0], b[1]);
      multiply(&x[d / 2 + 4], p[step], b[2], b[3]);
    }
  }
}

// What a query row brings: its log-sum-exp in powers of two (plus infinity: no probability) and its sum of dO O.
struct QueryNumbers {
  float lse = INFINITY, sum = 0;
};
__device__ QueryNumbers numbers_of(const PortableBackwardArgs& args, int row, bool inside, int head) {
  if (!inside) return {};
  const std::int64_t place = static_cast<std::int64_t>(row) * args.q_heads + head;
  const float lse = args.lse[place];
  return {lse == -INFINITY ? INFINITY : lse * (args.scale_log2 / args.scale), args.row_sums[place]};
}

__device__ float probability(float score, bool sees, float scale_log2, float lse) {
  return sees ? exp2_fast(fmaf(score, scale_log2, -lse)) : 0.0F;
}

// Keys x queries: scores to P^T, or, with the products dO V^T in d_p, to dS^T but for the scale.
template <bool kScoreGradients>
__device__ void weigh_keys(const PortableBackwardArgs& args, const KeyTile& tile, const BackwardSegment& segment,
                           const QueryTile& queries, int head, int row, float (&s)[kTile / 2],
                           const float (&d_p)[kTile / 2]) {
  const PieceRule& piece = args.key_tiles.pieces[segment.piece];
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < kTile / 4; ++i) {  // the thread's columns: a query each
    const int column = i / 2 * 8 + 2 * lane + i % 2;
    const bool inside = column < queries.q_count;
    const QueryNumbers numbers = numbers_of(args, queries.q_row + column, inside, head);
    const KeySpan span = visible_keys(piece, queries.q_row - piece.q_row + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = i / 2 * 4 + i % 2 + 2 * half;
      const int key = row + 8 * half;
      const int in_piece = segment.k_first + key;
      const bool sees = inside && key < tile.k_count && in_piece >= span.begin && in_piece < span.end;
      const float p = probability(s[at], sees, args.scale_log2, numbers.lse);
      s[at] = kScoreGradients ? p * (d_p[at] - numbers.sum) : p;
    }
  }
}

// dV (own tiles: K; others: Q, dO) or dK (own: K, V; others: Q, dO) of a key tile.
template <int kDim, bool kKeyGradient>
__global__ void __launch_bounds__(kTileThreads, 1) key_gradient_kernel(const PortableBackwardArgs args) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  Shared<kDim>& shared = *reinterpret_cast<Shared<kDim>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int row = warp_row + lane / 4;
  const int kv_head = static_cast<int>(blockIdx.x) % args.kv_heads;
  const KeyTile tile = args.key_tiles.tiles[static_cast<int>(blockIdx.x) / args.kv_heads];
  const int group = args.q_heads / args.kv_heads;
  float sum[kDim / 2];
#pragma unroll
  for (float& x : sum) x = 0;
  copy_rows<kDim>(&shared.own_a[0][0], args.k, tile.k_row, args.k_rows, args.kv_heads, kv_head);
  if (kKeyGradient) copy_rows<kDim>(&shared.own_b[0][0], args.v, tile.k_row, args.k_rows, args.kv_heads, kv_head);
  for (int i = tile.segment_begin; i < tile.segment_end; ++i) {
    const BackwardSegment segment = args.key_tiles.segments[i];
    for (int step = 0; step < group * segment.q_tiles; ++step) {
      const int head = kv_head * group + step / segment.q_tiles;
      const QueryTile queries = args.key_tiles.q_tiles[segment.q_tile_begin + step % segment.q_tiles];
      __syncthreads();  // all warps are done with the last tile
      copy_rows<kDim>(&shared.other_a[0][0], args.q, queries.q_row, args.q_rows, args.q_heads, head);
      copy_rows<kDim>(&shared.other_b[0][0], args.d_o, queries.q_row, args.q_rows, args.q_heads, head);
      wait_copies<0>();
      __syncthreads();
      float s[kTile / 2], d_p[kTile / 2];
      multiply_rows<kDim>(s, shared.own_a, shared.other_a, warp_row, lane);
      if (kKeyGradient) multiply_rows<kDim>(d_p, shared.own_b, shared.other_b, warp_row, lane);
      weigh_keys<kKeyGradient>(args, tile, segment, queries, head, row, s, kKeyGradient ? d_p : s);
      std::uint32_t p[kTile / 16][4];
      pack_probabilities(s, p);
      add_rows<kDim>(sum, p, kKeyGradient ? shared.other_a : shared.other_b, lane);
    }
  }
  __nv_bfloat16* to = (kKeyGradient ? args.d_k : args.d_v) +
                      (static_cast<std::int64_t>(tile.k_row + row) * args.kv_heads + kv_head) * kDim;
  const float factor = kKeyGradient ? args.scale : 1.0F;
  store_row<0>(sum, factor, row < tile.k_count, to);
  store_row<1>(sum, factor, row + 8 < tile.k_count, to + static_cast<std::int64_t>(8) * args.kv_heads * kDim);
}

template <int kDim>
__global__ void __launch_bounds__(kTileThreads, 1) query_gradient_kernel(const PortableBackwardArgs args) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  Shared<kDim>& shared = *reinterpret_cast<Shared<kDim>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int row = warp_row + lane / 4;
  const int head = static_cast<int>(blockIdx.x) % args.q_heads;
  const int kv_head = head / (args.q_heads / args.kv_heads);
  const AttentionTile tile = args.query_tiles.tiles[static_cast<int>(blockIdx.x) / args.q_heads];
  float sum[kDim / 2];
#pragma unroll
  for (float& x : sum) x = 0;
  QueryNumbers numbers[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) numbers[i] = numbers_of(args, tile.q_row + row + 8 * i, row + 8 * i < tile.q_count, head);
  copy_rows<kDim>(&shared.own_a[0][0], args.q, tile.q_row, args.q_rows, args.q_heads, head);
  copy_rows<kDim>(&shared.own_b[0][0], args.d_o, tile.q_row, args.q_rows, args.q_heads, head);
  KeyWalk walk(args.query_tiles, tile, row);
  for (int j = 0; j < tile.key_tiles; ++j) {
    walk.next();
    __syncthreads();
    copy_rows<kDim>(&shared.other_a[0][0], args.k, walk.key_row(kTile), args.k_rows, args.kv_heads, kv_head);
    copy_rows<kDim>(&shared.other_b[0][0], args.v, walk.key_row(kTile), args.k_rows, args.kv_heads, kv_head);
    wait_copies<0>();
    __syncthreads();
    float s[kTile / 2], d_p[kTile / 2];
    multiply_rows<kDim>(s, shared.own_a, shared.other_a, warp_row, lane);
    multiply_rows<kDim>(d_p, shared.own_b, shared.other_b, warp_row, lane);
    if (walk.masked()) apply_mask(s, walk);
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      const QueryNumbers& of_row = numbers[i / 2 % 2];
      s[i] = exp2_fast(fmaf(s[i], args.scale_log2, -of_row.lse)) * (d_p[i] - of_row.sum);
    }
    std::uint32_t d_s[kTile / 16][4];
    pack_probabilities(s, d_s);
    add_rows<kDim>(sum, d_s, shared.other_a, lane);
  }
  __nv_bfloat16* to = args.d_q + (static_cast<std::int64_t>(tile.q_row + row) * args.q_heads + head) * kDim;
  store_row<0>(sum, args.scale, row < tile.q_count, to);
  store_row<1>(sum, args.scale, row + 8 < tile.q_count, to + static_cast<std::int64_t>(8) * args.q_heads * kDim);
}

template <class Kernel>
void launch_kernel(Kernel kernel, int blocks, std::size_t bytes, const PortableBackwardArgs& args,
                   cudaStream_t stream) {
  if (blocks == 0) return;
  LH_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<static_cast<unsigned>(blocks), kTileThreads, bytes, stream>>>(args);
  LH_CUDA_CHECK(cudaGetLastError());
}

template <int kDim>
void launch(const PortableBackwardArgs& args, cudaStream_t stream) {
  constexpr std::size_t kBytes = sizeof(Shared<kDim>);
  const std::int64_t rows = static_cast<std::int64_t>(args.q_rows) * args.q_heads;
  if (rows > 0) {
    row_sums_kernel<<<static_cast<unsigned>((rows + 7) / 8), 256, 0, stream>>>(args, kDim);
    LH_CUDA_CHECK(cudaGetLastError());
  }
  launch_kernel(key_gradient_kernel<kDim, false>, args.key_tiles.tile_count * args.kv_heads, kBytes, args, stream);
  launch_kernel(key_gradient_kernel<kDim, true>, args.key_tiles.tile_count * args.kv_heads, kBytes, args, stream);
  launch_kernel(query_gradient_kernel<kDim>, args.query_tiles.tile_count * args.q_heads, kBytes, args, stream);
}

}  // namespace

void launch_portable_backward(const PortableBackwardArgs& args, int head_dim, cudaStream_t stream) {
  if (head_dim == 64) return launch<64>(args, stream);
  if (head_dim == 128) return launch<128>(args, stream);
  launch<256>(args, stream);
}

}  // namespace longhaul
