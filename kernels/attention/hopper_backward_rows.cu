#include <cstddef>
#include <cstdint>

#include "kernels/attention/hopper_backward_rows.h"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

constexpr int kDim = 128;
constexpr int kRows = kHopperBackwardRows;

// One warp a row of a (query tile, head).

__global__ void __launch_bounds__(256) row_statistics_kernel(const HopperBackwardArgs args) {
  const int tile_index = static_cast<int>(blockIdx.x) % args.tiles.q_tile_count;
  const int head = static_cast<int>(blockIdx.x) / args.tiles.q_tile_count;
  const QueryTile tile = args.tiles.q_tiles[tile_index];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* to = args.statistics + static_cast<std::int64_t>(blockIdx.x) * kRowStatistics;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < kRows; row += 8) {
    float sum = 0, lse = -INFINITY;
    if (row < tile.q_count) {
      const std::int64_t place = static_cast<std::int64_t>(tile.q_row + row) * args.q_heads + head;
      const auto* o = reinterpret_cast<const __nv_bfloat162*>(args.o + place * kDim) + 2 * lane;
      const auto* d_o = reinterpret_cast<const __nv_bfloat162*>(args.d_o + place * kDim) + 2 * lane;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 a = __bfloat1622float2(o[i]), b = __bfloat1622float2(d_o[i]);
        sum += a.x * b.x + a.y * b.y;
      }
      lse = args.lse[place];
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    if (lane == 0) {
      // A row without keys, or past the tile: plus infinity makes all its probabilities 0.
      to[row] = lse == -INFINITY ? INFINITY : lse * (args.scale_log2 / args.scale);
      to[kRows + row] = sum;
    }
  }
}

// 256 threads a (query tile, head), each as the thread of the accumulator.

__global__ void __launch_bounds__(256) round_d_q_kernel(const HopperBackwardArgs args) {
  const int tile_index = static_cast<int>(blockIdx.x) % args.tiles.q_tile_count;
  const int head = static_cast<int>(blockIdx.x) / args.tiles.q_tile_count;
  const QueryTile tile = args.tiles.q_tiles[tile_index];
  const int half = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const auto* from = reinterpret_cast<const float4*>(
      args.d_q_sum + static_cast<std::int64_t>(blockIdx.x) * kHopperTileSum + half * kHopperHalfSum);
  float x[32];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = from[j * 128 + thread];
    x[4 * j] = four.x, x[4 * j + 1] = four.y, x[4 * j + 2] = four.z, x[4 * j + 3] = four.w;
  }
  const int row = 16 * (thread / 32) + thread % 32 / 4;
  __nv_bfloat16* to = args.d_q + (static_cast<std::int64_t>(tile.q_row + row) * args.q_heads + head) * kDim + half * 64;
  store_row<0>(x, args.scale, row < tile.q_count, to);
  store_row<1>(x, args.scale, row + 8 < tile.q_count, to + static_cast<std::int64_t>(8) * args.q_heads * kDim);
}

unsigned items_of(const HopperBackwardArgs& args) {
  return static_cast<unsigned>(args.tiles.q_tile_count) * static_cast<unsigned>(args.q_heads);
}

}  // namespace

void launch_row_statistics(const HopperBackwardArgs& args, cudaStream_t stream) {
  const unsigned items = items_of(args);
  if (items == 0) return;
  row_statistics_kernel<<<items, 256, 0, stream>>>(args);
  LH_CUDA_CHECK(cudaGetLastError());
  LH_CUDA_CHECK(cudaMemsetAsync(args.d_q_sum, 0, std::size_t{items} * kHopperTileSum * 4, stream));
}

void launch_round_query_gradient(const HopperBackwardArgs& args, cudaStream_t stream) {
  const unsigned items = items_of(args);
  if (items == 0) return;
  round_d_q_kernel<<<items, 256, 0, stream>>>(args);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
