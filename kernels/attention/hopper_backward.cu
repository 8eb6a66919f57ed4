// Attention backward on Hopper: wgmma and bulk tensor copies, head dimension 128, bf16 in and out.
//
// Three kernels; the first and the last are in hopper_backward_rows.cu. The second does the work: a block holds a tile
// of 128 keys and values and goes over the query tiles of 64 that see it, for all query heads of its key head. Each of
// two warpgroups owns 64 of the keys and computes S^T = K Q^T and dP^T = V dO^T, from them P^T and dS^T, and adds
// P^T dO to dV and dS^T Q to dK in registers; dS of both goes through shared memory, and each computes half of the
// columns of dQ = dS K, which is added to an fp32 sum in memory (so bits of dQ differ between runs).
//
// This file is compiled for sm_90a alone; PieceAttention launches nothing of it elsewhere. backward_version.h says in
// what its versions differ.
#include <cstddef>

#include "kernels/attention/hopper_backward.h"
#include "kernels/attention/hopper_backward_copy.cuh"
#include "kernels/attention/hopper_backward_rows.h"
#include "kernels/attention/hopper_backward_step.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

using namespace hopper;

constexpr int kBoth = 1;  // named barriers: of both warpgroups; kOwn + warpgroup of one
constexpr int kOwn = 2;

template <class Traits>
class Consumer {
 public:
  using Shared = BackwardShared<Traits>;

  __device__ Consumer(Shared& shared, const HopperBackwardArgs& args, int warpgroup)
      : shared_(shared), args_(args), warpgroup_(warpgroup), thread_(static_cast<int>(threadIdx.x) % 128) {
    row_ = 64 * warpgroup + 16 * (thread_ / 32) + thread_ % 32 / 4;
    k_rows_ = descriptor_of_rows(shared.k + warpgroup * 64 * 128);
    v_rows_ = descriptor_of_rows(shared.v + warpgroup * 64 * 128);
    k_columns_ = descriptor_of_columns(shared.k + static_cast<std::uint32_t>(warpgroup) * kKeyHalf, kKeyHalf);
  }

  __device__ void run() {
    for (int item = draw(); item != kNoWork; item = draw()) {
      const BackwardWork work = work_of(args_, item);
      const KeyTile& tile = args_.tiles.tiles[work.tile];
      float d_k[kDim / 2], d_v[kDim / 2];
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) d_k[i] = d_v[i] = 0;
      if (tile.q_tiles > 0) accumulate(tile, d_k, d_v);
      store(tile, work.kv_head, d_k, d_v);
    }
    if (!Traits::kDirect && thread_ == 0) wait_sources_read();
  }

 private:
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
    if constexpr (Traits::kOrder == SumOrder::kNextStep) {
      float d_q[kRows / 2];
      visit<0>(tile, d_k, d_v, d_q);
      if (steps == 1) {
        finish_last<0>(d_q);
      } else {
        visit<1>(tile, d_k, d_v, d_q);
#pragma unroll 1
        for (int i = 2; i < steps; ++i) visit<2>(tile, d_k, d_v, d_q);
        finish_last<1>(d_q);
      }
    } else {
      for (int i = 0; i < steps; ++i) visit_whole(tile, d_k, d_v);
    }
    release(shared_.kv_empty);
  }

  // One query tile: adds to dK, dV and the sum of dQ.
  __device__ void visit_whole(const KeyTile& tile, float (&d_k)[kDim / 2], float (&d_v)[kDim / 2]) {
    constexpr bool kLast = Traits::kOrder == SumOrder::kLast;
    const int slot = ring_.slot;
    float s[kRows / 2], d_p[kRows / 2], d_q[kRows / 2];
    std::uint32_t p[kRows / 16][4], d_s[kRows / 16][4];
    start_scores(s, slot);
    start_gradients(d_p, slot);
    wait_wgmma<1>();
    to_probabilities(s, p, tile, slot);
    start_sum(d_v, p, descriptor_of_columns(shared_.d_o[slot], kQueryHalf));
    wait_wgmma<1>();
    to_score_gradients(d_p, p, d_s, slot);
    if constexpr (kLast) start_sum(d_k, d_s, descriptor_of_columns(shared_.q[slot], kQueryHalf));
    std::uint8_t* shared_d_s = shared_.d_s[shares_ & 1];
    // Two buffers: the one written now was read before both warpgroups came to the last barrier.
    store_score_gradients(d_s, shared_d_s, row_);
    named_sync(kBoth, kConsumerThreads);
    start_query_gradient(d_q, descriptor_of_columns(shared_d_s, 0), computed_again(k_columns_));
    if constexpr (!kLast) start_sum(d_k, d_s, descriptor_of_columns(shared_.q[slot], kQueryHalf));
    const int place = shared_.steps[slot].place;
    wait_wgmma<kLast ? 0 : 1>();
    fence_registers(d_v);
    fence_registers(d_q);
    release(shared_.d_o_empty[slot]);
    if constexpr (!kLast) {
      add_query_gradient(d_q, place);
      wait_wgmma<0>();
    }
    fence_registers(d_k);
    release(shared_.q_empty[slot]);
    ring_.next();
    ++shares_;
    if constexpr (kLast) add_query_gradient(d_q, place);
  }

  // One query tile, before which kBefore (2: or more) of the key tile went: adds to dK and dV, leaves dS in shared
  // memory and, except for the first, makes dQ of the step before. The buffer of dS that is written now held dS of two
  // steps ago, which the other warpgroup has read: it says that its dS of the last step is there only after that. With
  // kLate, d_q waits for the next step, which adds it while its own scores are made and nothing else wants to go
  // through the load and store units.
  template <int kBefore>
  __device__ void visit(const KeyTile& tile, float (&d_k)[kDim / 2], float (&d_v)[kDim / 2], float (&d_q)[kRows / 2]) {
    constexpr bool kFirst = kBefore == 0;
    const int slot = ring_.slot;
    float s[kRows / 2], d_p[kRows / 2];
    std::uint32_t p[kRows / 16][4], d_s[kRows / 16][4];
    start_scores(s, slot);
    if constexpr (Traits::kLate && kBefore > 1) add_query_gradient(d_q, sum_place_);
    start_gradients(d_p, slot);
    wait_wgmma<1>();
    to_probabilities(s, p, tile, slot);
    start_sum(d_v, p, descriptor_of_columns(shared_.d_o[slot], kQueryHalf));
    wait_wgmma<1>();
    to_score_gradients(d_p, p, d_s, slot);
    float sum[kRows / 2];  // not d_q itself, whose old numbers are of no use any more
    if constexpr (!kFirst) start_last_query_gradient(sum);
    store_score_gradients(d_s, shared_.d_s[shares_ & 1], row_);
    start_sum(d_k, d_s, descriptor_of_columns(shared_.q[slot], kQueryHalf));
    const int place = shared_.steps[slot].place;
    wait_wgmma<1>();
    fence_registers(d_v);
    release(shared_.d_s_full[shares_ & 1]);
    release(shared_.d_o_empty[slot]);
    if constexpr (!kFirst) {
      fence_registers(sum);
      sum_place_ = last_place_;
      if constexpr (Traits::kLate) {
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) d_q[i] = sum[i];
      } else {
        add_query_gradient(sum, sum_place_);
      }
    }
    wait_wgmma<0>();
    fence_registers(d_k);
    release(shared_.q_empty[slot]);
    last_place_ = place;
    ring_.next();
    ++shares_;
  }

  template <int kBefore>
  __device__ void finish_last(const float (&d_q)[kRows / 2]) {
    if constexpr (Traits::kLate && kBefore > 0) add_query_gradient(d_q, sum_place_);
    float sum[kRows / 2];
    start_last_query_gradient(sum);
    wait_wgmma<0>();
    fence_registers(sum);
    add_query_gradient(sum, last_place_);
  }

  // dQ of the step before, once both warpgroups' dS are there.
  __device__ void start_last_query_gradient(float (&d_q)[kRows / 2]) {
    const unsigned last = shares_ - 1;
    wait(shared_.d_s_full[last & 1], (last >> 1) & 1);
    start_query_gradient(d_q, descriptor_of_columns(shared_.d_s[last & 1], 0), computed_again(k_columns_));
  }

  __device__ void start_scores(float (&s)[kRows / 2], int slot) {
    wait(shared_.q_full[slot], ring_.parity);
    start_rows(s, computed_again(k_rows_), descriptor_of_rows(shared_.q[slot]));
  }
  __device__ void start_gradients(float (&d_p)[kRows / 2], int slot) {
    wait(shared_.d_o_full[slot], ring_.parity);
    start_rows(d_p, computed_again(v_rows_), descriptor_of_rows(shared_.d_o[slot]));
  }

  __device__ void to_probabilities(float (&s)[kRows / 2], std::uint32_t (&p)[kRows / 16][4], const KeyTile& tile,
                                   int slot) {
    fence_registers(s);
    if (shared_.steps[slot].masked != 0) mask_scores(s, args_.tiles, tile, shared_.steps[slot], row_);
    probabilities(s, shared_.statistics[slot], args_.scale_log2);
    pack_probabilities(s, p);
  }

  __device__ void to_score_gradients(float (&d_p)[kRows / 2], const std::uint32_t (&p)[kRows / 16][4],
                                     std::uint32_t (&d_s)[kRows / 16][4], int slot) {
    fence_registers(d_p);
    score_gradients(d_p, p, shared_.statistics[slot] + kRows);
    pack_probabilities(d_p, d_s);
  }

  __device__ void add_query_gradient(const float (&d_q)[kRows / 2], int place) {
    float* to = args_.d_q_sum + static_cast<std::int64_t>(place) * kHopperTileSum + warpgroup_ * kHopperHalfSum;
    if constexpr (Traits::kDirect) {
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        add_four_to_memory(to + 4 * (j * 128 + thread_), d_q[4 * j], d_q[4 * j + 1], d_q[4 * j + 2], d_q[4 * j + 3]);
      }
    } else {
      float* staged = shared_.d_q.half[warpgroup_];
      if (thread_ == 0) wait_sources_read();
      named_sync(kOwn + warpgroup_, 128);
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        reinterpret_cast<float4*>(staged)[j * 128 + thread_] =
            make_float4(d_q[4 * j], d_q[4 * j + 1], d_q[4 * j + 2], d_q[4 * j + 3]);
      }
      fence_shared_stores();
      named_sync(kOwn + warpgroup_, 128);
      if (thread_ == 0) add_to_memory(to, staged, kHopperHalfSum * 4);
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
  Ring<Traits::kStages> ring_;
  unsigned shares_ = 0;  // of dS, since the block began: two buffers in turns
  int last_place_ = 0;   // of the step before
  int sum_place_ = 0;    // of d_q between steps
  std::uint32_t work_parity_ = 0, kv_parity_ = 0;
};

template <class Traits>
__global__ void __launch_bounds__(kThreads, 1) hopper_backward_kernel(const __grid_constant__ HopperBackwardMaps maps,
                                                                      const __grid_constant__ HopperBackwardArgs args) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = aligned_shared<BackwardShared<Traits>>(raw);
  const auto set_up = [&] {
    shared.make_barriers();
    prefetch_map(maps.q);
    prefetch_map(maps.d_o);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
  };
  run_block(
      set_up, [&] { BackwardProducer<Traits>(shared, maps, args).run(); },
      [&](int warpgroup) { Consumer<Traits>(shared, args, warpgroup).run(); });
}

template <class Traits>
void launch(const HopperBackwardMaps& maps, const HopperBackwardArgs& args, unsigned blocks, cudaStream_t stream) {
  constexpr std::size_t kBytes = kSharedBytes<BackwardShared<Traits>>;
  static_assert(kBytes <= 227 * 1024);
  const auto kernel = hopper_backward_kernel<Traits>;
  LH_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  kernel<<<blocks, kThreads, kBytes, stream>>>(maps, args);
  LH_CUDA_CHECK(cudaGetLastError());
}

using TraitsC = BackwardTraits<SumOrder::kLast, false, 2>;
using TraitsD = BackwardTraits<SumOrder::kBeforeKeys, false, 2>;
using TraitsE = BackwardTraits<SumOrder::kNextStep, false, 2>;
using TraitsF = BackwardTraits<SumOrder::kNextStep, true, 3>;
using TraitsG = BackwardTraits<SumOrder::kBeforeKeys, true, 3>;
using TraitsH = BackwardTraits<SumOrder::kNextStep, true, 3, true>;

}  // namespace

void launch_hopper_backward(HopperBackwardVersion version, const HopperBackwardMaps& maps,
                            const HopperBackwardArgs& args, int multiprocessors, cudaStream_t stream) {
  launch_row_statistics(args, stream);
  const std::int64_t items = static_cast<std::int64_t>(args.tiles.tile_count) * args.kv_heads;
  if (items > 0) {
    const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
    switch (version) {
      case HopperBackwardVersion::kC:
        launch<TraitsC>(maps, args, blocks, stream);
        break;
      case HopperBackwardVersion::kD:
        launch<TraitsD>(maps, args, blocks, stream);
        break;
      case HopperBackwardVersion::kE:
        launch<TraitsE>(maps, args, blocks, stream);
        break;
      case HopperBackwardVersion::kF:
        launch<TraitsF>(maps, args, blocks, stream);
        break;
      case HopperBackwardVersion::kG:
        launch<TraitsG>(maps, args, blocks, stream);
        break;
      case HopperBackwardVersion::kH:
        launch<TraitsH>(maps, args, blocks, stream);
        break;
    }
  }
  launch_round_query_gradient(args, stream);
}

}  // namespace longhaul
