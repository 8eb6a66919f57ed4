// Attention forward for sm_80 and up: mma.sync, head dimension 64, 128 or 256, bf16 in and out, fp32 log-sum-exp.
//
// A block is four warps and one (query tile, head) pair; a warp owns 16 of the tile's 64 queries. Keys and values of a
// tile of 64 are copied to shared memory by cp.async, the values while the scores are computed. Simple on purpose: it
// is the path for every mask and head dimension where the Hopper kernel does not run.
#include <algorithm>

#include "kernels/attention/portable_forward.h"
#include "kernels/attention/portable_tile.cuh"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

using namespace portable;

constexpr int kRows = kPortableTileRows;
constexpr int kKeys = kPortableTileKeys;

template <int kDim>
struct Shared {
  __nv_bfloat16 q[kRows][kDim + kPad];
  __nv_bfloat16 k[kKeys][kDim + kPad];
  __nv_bfloat16 v[kKeys][kDim + kPad];
};

// s = Q K^T of the warp's 16 rows.
template <int kDim>
__device__ void scores(float (&s)[kKeys / 2], const Shared<kDim>& shared, int warp_row, int lane) {
#pragma unroll
  for (float& x : s) x = 0;
#pragma unroll 4
  for (int d = 0; d < kDim; d += 16) {
    std::uint32_t a[4];
    load_matrices(a, &shared.q[warp_row + lane % 16][d + lane / 16 * 8]);
#pragma unroll
    for (int n = 0; n < kKeys; n += 16) {
      std::uint32_t b[4];  // keys n .. n+7 and n+8 .. n+15, each for d and d + 8
      load_matrices(b, &shared.k[n + lane % 8 + lane / 16 * 8][d + lane / 8 % 2 * 8]);
      multiply(&s[n / 2], a, b[0], b[1]);
      multiply(&s[n / 2 + 4], a, b[2], b[3]);
    }
  }
}

// o += P V of the warp's 16 rows.
template <int kDim>
__device__ void add_values(float (&o)[kDim / 2], const std::uint32_t (&p)[kKeys / 16][4], const Shared<kDim>& shared,
                           int lane) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      std::uint32_t b[4];  // columns d .. d+7 and d+8 .. d+15, each for keys 0-7 and 8-15 of the step
      load_transposed(b, &shared.v[step * 16 + lane % 16][d + lane / 16 * 8]);
      multiply(&o[d / 2], p[step], b[0], b[1]);
      multiply(&o[d / 2 + 4], p[step], b[2], b[3]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kTileThreads) portable_forward_kernel(const PortableForwardArgs args) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  Shared<kDim>& shared = *reinterpret_cast<Shared<kDim>*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int head = static_cast<int>(blockIdx.x) % args.out.q_heads;
  const AttentionTile tile = args.tiles.tiles[static_cast<int>(blockIdx.x) / args.out.q_heads];
  const int kv_head = head / (args.out.q_heads / args.kv_heads);
  const int row = warp_row + lane / 4;

  float o[kDim / 2];
#pragma unroll
  for (float& x : o) x = 0;
  RowState rows[2];
  KeyWalk walk(args.tiles, tile, row);
  copy_rows<kDim>(&shared.q[0][0], args.q, tile.q_row, args.q_rows, args.out.q_heads, head);
  for (int j = 0; j < tile.key_tiles; ++j) {
    walk.next();
    __syncthreads();  // all warps are done with the last tile
    const int first = walk.key_row(kKeys);
    copy_rows<kDim>(&shared.k[0][0], args.k, first, args.k_rows, args.kv_heads, kv_head);
    copy_rows<kDim>(&shared.v[0][0], args.v, first, args.k_rows, args.kv_heads, kv_head);
    wait_copies<1>();
    __syncthreads();
    float s[kKeys / 2];
    scores<kDim>(s, shared, warp_row, lane);
    if (walk.masked()) apply_mask(s, walk);
    const float shrink[2] = {softmax_row<0>(s, rows[0], args.out.scale_log2),
                             softmax_row<1>(s, rows[1], args.out.scale_log2)};
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] *= shrink[i / 2 % 2];
    std::uint32_t p[kKeys / 16][4];
    pack_probabilities(s, p);
    wait_copies<0>();
    __syncthreads();
    add_values<kDim>(o, p, shared, lane);
  }
  store_rows(args.out, tile, row, head, o, rows);
}

template <int kDim>
void launch(const PortableForwardArgs& args, cudaStream_t stream) {
  const int blocks = args.tiles.tile_count * args.out.q_heads;
  if (blocks == 0) return;
  LH_CUDA_CHECK(cudaFuncSetAttribute(portable_forward_kernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(sizeof(Shared<kDim>))));
  portable_forward_kernel<kDim><<<static_cast<unsigned>(blocks), kTileThreads, sizeof(Shared<kDim>), stream>>>(args);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_portable_forward(const PortableForwardArgs& args, int head_dim, cudaStream_t stream) {
  if (head_dim == 64) return launch<64>(args, stream);
  if (head_dim == 128) return launch<128>(args, stream);
  launch<256>(args, stream);
}

}  // namespace longhaul
