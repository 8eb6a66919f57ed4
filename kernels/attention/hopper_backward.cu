// Attention backward on Hopper: wgmma and bulk tensor copies, head dimension 128, bf16 in and out.
//
// Three kernels. The first packs, for every (query tile, head), the log-sum-exps and the sums of dO O. The second does
// the work: a block holds a tile of 128 keys and values and goes over the query tiles of 64 that see it, for all query
// heads of its key head. Each of two warpgroups owns 64 of the keys and computes S^T = K Q^T and dP^T = V dO^T, from
// them P^T and dS^T, and adds P^T dO to dV and dS^T Q to dK in registers; dS of both goes through shared memory, and
// each computes half of the columns of dQ = dS K, which the copy engine adds to an fp32 sum in memory (so bits of dQ
// differ between runs). The third scales that sum and rounds it to bf16.
//
// This file is compiled for sm_90a alone; PieceAttention launches nothing of it elsewhere.
//
// The sum of dQ lies as the accumulators do: [head][query tile][half][8][128 threads][4].
#include "kernels/attention/hopper_backward.h"
#include "kernels/attention/hopper_block.cuh"
#include "kernels/attention/hopper_copy.cuh"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

using namespace hopper;

constexpr int kDim = 128;
constexpr int kRows = kHopperBackwardRows;
constexpr int kKeys = kHopperBackwardKeys;
constexpr int kStages = 2;
constexpr std::uint32_t kQueryBytes = kRows * kDim * 2;
constexpr std::uint32_t kKeyBytes = kKeys * kDim * 2;
constexpr int kHalfSum = kRows * 64;  // fp32 numbers of half the columns of a tile of dQ
constexpr int kTileSum = 2 * kHalfSum;

// What the copying warp tells the computing ones about a copied query tile.
struct Step {
  int q_tile, head, segment, masked;
};

struct __align__(1024) Shared {
  std::uint8_t k[kKeyBytes], v[kKeyBytes];
  std::uint8_t q[kStages][kQueryBytes], d_o[kStages][kQueryBytes];
  std::uint8_t d_s[2][kKeys * kRows * 2];
  float d_q[2][kHalfSum];
  float statistics[kStages][kRowStatistics];
  Step steps[kStages];
  Barrier kv_full, kv_empty;
  Barrier q_full[kStages], q_empty[kStages];
  Barrier d_o_full[kStages], d_o_empty[kStages];
  Barrier work_full, work_empty;
  int work;
};

// ---- before: one warp a row of a (query tile, head)

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

// ---- after: 256 threads a (query tile, head), each as the thread of the accumulator

__global__ void __launch_bounds__(256) round_d_q_kernel(const HopperBackwardArgs args) {
  const int tile_index = static_cast<int>(blockIdx.x) % args.tiles.q_tile_count;
  const int head = static_cast<int>(blockIdx.x) / args.tiles.q_tile_count;
  const QueryTile tile = args.tiles.q_tiles[tile_index];
  const int half = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const auto* from = reinterpret_cast<const float4*>(args.d_q_sum + static_cast<std::int64_t>(blockIdx.x) * kTileSum +
                                                     half * kHalfSum);
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

constexpr std::uint32_t kQueryHalf = kRows * 128;  // bytes from columns 0-63 to columns 64-127
constexpr std::uint32_t kKeyHalf = kKeys * 128;
constexpr std::uint32_t kStatisticsBytes = kRowStatistics * 4;

class Producer {
 public:
  __device__ Producer(Shared& shared, const HopperBackwardMaps& maps, const HopperBackwardArgs& args)
      : shared_(shared), maps_(maps), args_(args) {}

  __device__ void run() {
    const int items = args_.tiles.tile_count * args_.kv_heads;
    int item = static_cast<int>(blockIdx.x);
    while (item < items) {
      publish(item);
      copy(args_.tiles.tiles[item / args_.kv_heads], item % args_.kv_heads);
      item = draw_item(args_.counters);
    }
    publish(kNoWork);
    leave(args_.counters);
  }

 private:
  __device__ void publish(int item) {
    wait(shared_.work_empty, work_parity_ ^ 1);
    work_parity_ ^= 1;
    shared_.work = item;
    arrive(shared_.work_full);
  }

  __device__ void copy(const KeyTile& tile, int kv_head) {
    if (tile.q_tiles == 0) return;
    wait(shared_.kv_empty, kv_parity_ ^ 1);
    kv_parity_ ^= 1;
    arrive_expecting(shared_.kv_full, 2 * kKeyBytes);
    copy_tile(shared_.k, maps_.k, shared_.kv_full, tile.k_row, kv_head);
    copy_tile(shared_.v, maps_.v, shared_.kv_full, tile.k_row, kv_head);
    const int group = args_.q_heads / args_.kv_heads;
    for (int i = tile.segment_begin; i < tile.segment_end; ++i) {
      const BackwardSegment& segment = args_.tiles.segments[i];
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
#pragma unroll 1
        for (int t = 0; t < segment.q_tiles; ++t) {
          const bool masked = t < segment.full_from || t >= segment.full_to || tile.k_count < kKeys;
          copy_queries({segment.q_tile_begin + t, head, i, masked ? 1 : 0});
        }
      }
    }
  }

  __device__ void copy_queries(const Step& step) {
    const int row = args_.tiles.q_tiles[step.q_tile].q_row;
    const int slot = ring_.slot;
    wait(shared_.q_empty[slot], ring_.parity ^ 1);
    shared_.steps[slot] = step;
    arrive_expecting(shared_.q_full[slot], kQueryBytes + kStatisticsBytes);
    copy_tile(shared_.q[slot], maps_.q, shared_.q_full[slot], row, step.head);
    const int place = step.head * args_.tiles.q_tile_count + step.q_tile;
    copy_bytes(shared_.statistics[slot], args_.statistics + static_cast<std::int64_t>(place) * kRowStatistics,
               kStatisticsBytes, shared_.q_full[slot]);
    wait(shared_.d_o_empty[slot], ring_.parity ^ 1);
    arrive_expecting(shared_.d_o_full[slot], kQueryBytes);
    copy_tile(shared_.d_o[slot], maps_.d_o, shared_.d_o_full[slot], row, step.head);
    ring_.next();
  }

  Shared& shared_;
  const HopperBackwardMaps& maps_;
  const HopperBackwardArgs& args_;
  Ring<kStages> ring_;
  std::uint32_t work_parity_ = 0, kv_parity_ = 0;
};

class Consumer {
 public:
  __device__ Consumer(Shared& shared, const HopperBackwardArgs& args, int warpgroup)
      : shared_(shared), args_(args), warpgroup_(warpgroup), thread_(static_cast<int>(threadIdx.x) % 128) {
    row_ = 64 * warpgroup + 16 * (thread_ / 32) + thread_ % 32 / 4;
    k_rows_ = descriptor_of_rows(shared.k + warpgroup * 64 * 128);
    v_rows_ = descriptor_of_rows(shared.v + warpgroup * 64 * 128);
    k_columns_ = descriptor_of_columns(shared.k + static_cast<std::uint32_t>(warpgroup) * kKeyHalf, kKeyHalf);
  }

  __device__ void run() {
    for (int item = draw(); item != kNoWork; item = draw()) {
      const KeyTile& tile = args_.tiles.tiles[item / args_.kv_heads];
      const int kv_head = item % args_.kv_heads;
      float d_k[kDim / 2], d_v[kDim / 2];
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) d_k[i] = d_v[i] = 0;
      if (tile.q_tiles > 0) accumulate(tile, d_k, d_v);
      store(tile, kv_head, d_k, d_v);
    }
    if (thread_ == 0) wait_sources_read();
  }

 private:
  static constexpr int kBoth = 1;  // named barriers: of both warpgroups; kOwn + warpgroup of one
  static constexpr int kOwn = 2;

  __device__ int draw() {
    wait(shared_.work_full, work_parity_);
    work_parity_ ^= 1;
    const int item = shared_.work;
    release(shared_.work_empty);
    return item;
  }

  __device__ void accumulate(const KeyTile& tile, float (&d_k)[kDim / 2], float (&d_v)[kDim / 2]) {
    wait(shared_.kv_full, kv_parity_);
    kv_parity_ ^= 1;
    const int steps = tile.q_tiles * (args_.q_heads / args_.kv_heads);
    for (int i = 0; i < steps; ++i) visit(tile, d_k, d_v);
    release(shared_.kv_empty);
  }

  // One query tile: adds to dK, dV and the sum of dQ.
  __device__ void visit(const KeyTile& tile, float (&d_k)[kDim / 2], float (&d_v)[kDim / 2]) {
    const int slot = ring_.slot;
    float s[kRows / 2], d_p[kRows / 2];
    wait(shared_.q_full[slot], ring_.parity);
    start_rows(s, computed_again(k_rows_), descriptor_of_rows(shared_.q[slot]));
    wait(shared_.d_o_full[slot], ring_.parity);
    start_rows(d_p, computed_again(v_rows_), descriptor_of_rows(shared_.d_o[slot]));
    wait_wgmma<1>();
    fence_registers(s);
    if (shared_.steps[slot].masked != 0) mask(s, tile, shared_.steps[slot]);
    probabilities(s, shared_.statistics[slot]);
    std::uint32_t p[kRows / 16][4];
    pack_probabilities(s, p);
    start_sum(d_v, p, descriptor_of_columns(shared_.d_o[slot], kQueryHalf));
    wait_wgmma<1>();
    fence_registers(d_p);
    score_gradients(d_p, p, shared_.statistics[slot] + kRows);
    std::uint32_t d_s[kRows / 16][4];
    pack_probabilities(d_p, d_s);
    start_sum(d_k, d_s, descriptor_of_columns(shared_.q[slot], kQueryHalf));
    share(d_s, shared_.d_s[buffer_]);
    float d_q[kRows / 2];
    start_query_gradient(d_q, descriptor_of_columns(shared_.d_s[buffer_], 0));
    wait_wgmma<0>();
    fence_registers(d_v);
    fence_registers(d_k);
    fence_registers(d_q);
    const Step step = shared_.steps[slot];
    release(shared_.q_empty[slot]);
    release(shared_.d_o_empty[slot]);
    ring_.next();
    buffer_ ^= 1;
    add_query_gradient(d_q, step.q_tile, step.head);
  }

  // d = A B^T, both by rows of 128 columns.
  __device__ void start_rows(float (&d)[kRows / 2], std::uint64_t a, std::uint64_t b) {
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
  __device__ void start_sum(float (&d)[kDim / 2], std::uint32_t (&a)[kRows / 16][4], std::uint64_t b) {
    fence_registers(d);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) fence_registers(a[i]);
    begin_wgmma();
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) add_product(d, a[i], advance(b, i * 16 * 128));
    commit_wgmma();
  }
  // d = dS K for this warpgroup's half of the columns, over all 128 keys.
  __device__ void start_query_gradient(float (&d)[kRows / 2], std::uint64_t d_s) {
    const std::uint64_t k = computed_again(k_columns_);
    fence_registers(d);
    begin_wgmma();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      multiply_columns(d, advance(d_s, i * 16 * 128), advance(k, i * 16 * 128), i > 0);
    }
    commit_wgmma();
  }

  // Scores of pairs that the mask excludes, and of keys past the tile, become minus infinity.
  __device__ void mask(float (&s)[kRows / 2], const KeyTile& tile, const Step& step) {
    const BackwardSegment& segment = args_.tiles.segments[step.segment];
    const int q_row = args_.tiles.q_tiles[step.q_tile].q_row;
    const PieceRule& piece = args_.tiles.pieces[segment.piece];
    const int query = q_row - piece.q_row + 2 * (thread_ % 4);
    const int key = segment.k_first + row_;
    const bool upper_inside = row_ < tile.k_count, lower_inside = row_ + 8 < tile.k_count;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const KeySpan span = visible_keys(piece, query + i / 2 * 8 + i % 2);
      const int at = i / 2 * 4 + i % 2;
      if (!upper_inside || key < span.begin || key >= span.end) s[at] = -INFINITY;
      if (!lower_inside || key + 8 < span.begin || key + 8 >= span.end) s[at + 2] = -INFINITY;
    }
  }

  // Scores (keys x queries) to probabilities.
  __device__ void probabilities(float (&s)[kRows / 2], const float* lse) {
    const int column = 2 * (thread_ % 4);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      const float2 top = *reinterpret_cast<const float2*>(lse + 8 * j + column);
      s[4 * j] = exp2_fast(fmaf(s[4 * j], args_.scale_log2, -top.x));
      s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], args_.scale_log2, -top.y));
      s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], args_.scale_log2, -top.x));
      s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], args_.scale_log2, -top.y));
    }
  }
  // Gradients of the probabilities to those of the scores, but for the scale. The probabilities are those that dV is
  // made of, rounded to bf16: keeping them in fp32 as well would take more registers than there are.
  __device__ void score_gradients(float (&d_p)[kRows / 2], const std::uint32_t (&p)[kRows / 16][4], const float* sums) {
    const int column = 2 * (thread_ % 4);
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

  // Puts dS^T where wgmma finds it as dS with m contiguous, and waits for the other warpgroup's half. Two buffers: the
  // one written now was read before both warpgroups came to the last barrier.
  __device__ void share(const std::uint32_t (&d_s)[kRows / 16][4], std::uint8_t* to) {
    const int key = computed_again(row_);
    std::uint8_t* row = to + key * 128 + thread_ % 4 * 4;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int unit = (2 * i + part / 2) ^ (key % 8);
        *reinterpret_cast<std::uint32_t*>(row + part % 2 * 8 * 128 + unit * 16) = d_s[i][part];
      }
    }
    fence_shared_stores();
    named_sync(kBoth, kConsumerThreads);
  }

  __device__ void add_query_gradient(const float (&d_q)[kRows / 2], int q_tile, int head) {
    float* staged = shared_.d_q[warpgroup_];
    if (thread_ == 0) wait_sources_read();
    named_sync(kOwn + warpgroup_, 128);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      reinterpret_cast<float4*>(staged)[j * 128 + thread_] =
          make_float4(d_q[4 * j], d_q[4 * j + 1], d_q[4 * j + 2], d_q[4 * j + 3]);
    }
    fence_shared_stores();
    named_sync(kOwn + warpgroup_, 128);
    if (thread_ == 0) {
      const std::int64_t tile = static_cast<std::int64_t>(head) * args_.tiles.q_tile_count + q_tile;
      add_to_memory(args_.d_q_sum + tile * kTileSum + warpgroup_ * kHalfSum, staged, kHalfSum * 4);
    }
  }

  __device__ void store(const KeyTile& tile, int kv_head, const float (&d_k)[kDim / 2], const float (&d_v)[kDim / 2]) {
    const std::int64_t place = (static_cast<std::int64_t>(tile.k_row + row_) * args_.kv_heads + kv_head) * kDim;
    const std::int64_t lower = static_cast<std::int64_t>(8) * args_.kv_heads * kDim;
    const bool upper_inside = row_ < tile.k_count, lower_inside = row_ + 8 < tile.k_count;
    store_row<0>(d_k, args_.scale, upper_inside, args_.d_k + place);
    store_row<1>(d_k, args_.scale, lower_inside, args_.d_k + place + lower);
    store_row<0>(d_v, 1.0F, upper_inside, args_.d_v + place);
    store_row<1>(d_v, 1.0F, lower_inside, args_.d_v + place + lower);
  }

  Shared& shared_;
  const HopperBackwardArgs& args_;
  int warpgroup_, thread_;
  int row_ = 0;  // the upper one of the thread's two keys, in the tile
  std::uint64_t k_rows_ = 0, v_rows_ = 0, k_columns_ = 0;
  Ring<kStages> ring_;
  int buffer_ = 0;
  std::uint32_t work_parity_ = 0, kv_parity_ = 0;
};

__device__ void make_barriers(Shared& shared) {
  init_barrier(shared.kv_full, 1);
  init_barrier(shared.kv_empty, kConsumerWarps);
  init_barrier(shared.work_full, 1);
  init_barrier(shared.work_empty, kConsumerWarps);
  for (int i = 0; i < kStages; ++i) {
    init_barrier(shared.q_full[i], 1);
    init_barrier(shared.q_empty[i], kConsumerWarps);
    init_barrier(shared.d_o_full[i], 1);
    init_barrier(shared.d_o_empty[i], kConsumerWarps);
  }
  fence_barrier_init();
}

__global__ void __launch_bounds__(kThreads, 1) hopper_backward_kernel(const __grid_constant__ HopperBackwardMaps maps,
                                                                      const __grid_constant__ HopperBackwardArgs args) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = aligned_shared<Shared>(raw);
  const auto set_up = [&] {
    make_barriers(shared);
    prefetch_map(maps.q);
    prefetch_map(maps.d_o);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
  };
  run_block(
      set_up, [&] { Producer(shared, maps, args).run(); },
      [&](int warpgroup) { Consumer(shared, args, warpgroup).run(); });
}

}  // namespace

void launch_hopper_backward(const HopperBackwardMaps& maps, const HopperBackwardArgs& args, int multiprocessors,
                            cudaStream_t stream) {
  const std::int64_t q_items = static_cast<std::int64_t>(args.tiles.q_tile_count) * args.q_heads;
  const std::int64_t items = static_cast<std::int64_t>(args.tiles.tile_count) * args.kv_heads;
  if (q_items > 0) {
    row_statistics_kernel<<<static_cast<unsigned>(q_items), 256, 0, stream>>>(args);
    LH_CUDA_CHECK(cudaGetLastError());
    LH_CUDA_CHECK(cudaMemsetAsync(args.d_q_sum, 0, static_cast<std::size_t>(q_items) * kTileSum * 4, stream));
  }
  if (items > 0) {
    constexpr std::size_t kBytes = kSharedBytes<Shared>;
    LH_CUDA_CHECK(cudaFuncSetAttribute(hopper_backward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(kBytes)));
    const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
    hopper_backward_kernel<<<blocks, kThreads, kBytes, stream>>>(maps, args);
    LH_CUDA_CHECK(cudaGetLastError());
  }
  if (q_items > 0) {
    round_d_q_kernel<<<static_cast<unsigned>(q_items), 256, 0, stream>>>(args);
    LH_CUDA_CHECK(cudaGetLastError());
  }
}

}  // namespace longhaul
