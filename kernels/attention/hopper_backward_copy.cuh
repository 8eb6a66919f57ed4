// Shared memory of the Hopper backward kernel, its barriers, and the thread that copies into it. Needs sm_90a.
//
// Traits of a version: BackwardTraits below. A slot of query tiles is filled in two parts, queries with statistics and
// dO, since they are let go of at different times.
#pragma once

#include <cstdint>

#include "kernels/attention/hopper_backward.h"
#include "kernels/attention/hopper_backward_rows.h"
#include "kernels/attention/hopper_block.cuh"
#include "kernels/attention/hopper_copy.cuh"

namespace longhaul::hopper {

// When dQ of a step is made: after dK; before dK; in the next step.
enum class SumOrder : std::uint8_t { kLast, kBeforeKeys, kNextStep };

// A version. kDirect: dQ is added by the threads and not staged; kStages: slots of query tiles; kLate (of kNextStep):
// dQ is added another step later.
template <SumOrder kSumOrder, bool kDirectSum, int kSlots, bool kLateSum = false>
struct BackwardTraits {
  static constexpr SumOrder kOrder = kSumOrder;
  static constexpr bool kDirect = kDirectSum;
  static constexpr int kStages = kSlots;
  static constexpr bool kLate = kLateSum;
};

inline constexpr int kDim = 128;
inline constexpr int kRows = kHopperBackwardRows;
inline constexpr int kKeys = kHopperBackwardKeys;
inline constexpr std::uint32_t kQueryBytes = kRows * kDim * 2;
inline constexpr std::uint32_t kKeyBytes = kKeys * kDim * 2;
inline constexpr std::uint32_t kQueryHalf = kRows * 128;  // bytes from columns 0-63 to columns 64-127
inline constexpr std::uint32_t kKeyHalf = kKeys * 128;
inline constexpr std::uint32_t kStatisticsBytes = kRowStatistics * 4;

// What the copying thread tells the computing ones about a copied query tile; `place` is that of (head, query tile).
struct Step {
  int q_row, place, segment, masked;
};

template <bool kDirect>
struct StagedSum {
  float half[2][kHopperHalfSum];
};
template <>
struct StagedSum<true> {};

template <class Traits>
struct __align__(1024) BackwardShared {
  std::uint8_t k[kKeyBytes], v[kKeyBytes];
  std::uint8_t q[Traits::kStages][kQueryBytes], d_o[Traits::kStages][kQueryBytes];
  std::uint8_t d_s[2][kKeys * kRows * 2];
  StagedSum<Traits::kDirect> d_q;
  alignas(128) float statistics[Traits::kStages][kRowStatistics];
  Step steps[Traits::kStages];
  Barrier kv_full, kv_empty;
  Barrier q_full[Traits::kStages], q_empty[Traits::kStages];
  Barrier d_o_full[Traits::kStages], d_o_empty[Traits::kStages];
  Barrier d_s_full[2];  // used where dQ is deferred
  Barrier work_full, work_empty;
  int work;

  __device__ void make_barriers() {
    init_barrier(kv_full, 1);
    init_barrier(kv_empty, kConsumerWarps);
    init_barrier(work_full, 1);
    init_barrier(work_empty, kConsumerWarps);
    for (int i = 0; i < 2; ++i) init_barrier(d_s_full[i], kConsumerWarps);
    for (int i = 0; i < Traits::kStages; ++i) {
      init_barrier(q_full[i], 1);
      init_barrier(q_empty[i], kConsumerWarps);
      init_barrier(d_o_full[i], 1);
      init_barrier(d_o_empty[i], kConsumerWarps);
    }
    fence_barrier_init();
  }
};

struct BackwardWork {
  int tile, kv_head;
};
// All key tiles of the first key head, then of the second, ...: blocks that read the same queries at about the same
// time find them, and the sums of dQ, in the L2. Those of the last heads are mixed, long ones first, so that blocks end
// together.
__device__ inline BackwardWork work_of(const HopperBackwardArgs& args, int item) {
  const int tiles = args.tiles.tile_count;
  const int alone = args.kv_heads - args.last_heads;
  if (item < alone * tiles) return {item % tiles, item / tiles};
  const int rest = item - alone * tiles;
  return {rest / args.last_heads, alone + rest % args.last_heads};
}

template <class Traits>
class BackwardProducer {
 public:
  using Shared = BackwardShared<Traits>;

  __device__ BackwardProducer(Shared& shared, const HopperBackwardMaps& maps, const HopperBackwardArgs& args)
      : shared_(shared), maps_(maps), args_(args) {}

  __device__ void run() {
    const int items = args_.tiles.tile_count * args_.kv_heads;
    int item = static_cast<int>(blockIdx.x);
    while (item < items) {
      publish(item);
      const BackwardWork work = work_of(args_, item);
      copy(args_.tiles.tiles[work.tile], work.kv_head);
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
          copy_queries(segment.q_tile_begin + t, head, i, masked ? 1 : 0);
        }
      }
    }
  }

  __device__ void copy_queries(int q_tile, int head, int segment, int masked) {
    const int row = args_.tiles.q_tiles[q_tile].q_row;
    const int place = head * args_.tiles.q_tile_count + q_tile;
    const int slot = ring_.slot;
    wait(shared_.q_empty[slot], ring_.parity ^ 1);
    shared_.steps[slot] = {row, place, segment, masked};
    arrive_expecting(shared_.q_full[slot], kQueryBytes + kStatisticsBytes);
    copy_tile(shared_.q[slot], maps_.q, shared_.q_full[slot], row, head);
    copy_bytes(shared_.statistics[slot], args_.statistics + static_cast<std::int64_t>(place) * kRowStatistics,
               kStatisticsBytes, shared_.q_full[slot]);
    wait(shared_.d_o_empty[slot], ring_.parity ^ 1);
    arrive_expecting(shared_.d_o_full[slot], kQueryBytes);
    copy_tile(shared_.d_o[slot], maps_.d_o, shared_.d_o_full[slot], row, head);
    ring_.next();
  }

  Shared& shared_;
  const HopperBackwardMaps& maps_;
  const HopperBackwardArgs& args_;
  Ring<Traits::kStages> ring_;
  std::uint32_t work_parity_ = 0, kv_parity_ = 0;
};

}  // namespace longhaul::hopper
